"""Orders: what operators want of this pod, as its beats hear it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..core.pod import Wish

log = logging.getLogger("treadle.pod")


class Orders:
    def __init__(self, *, label: Callable[[], str], wake: Callable[[], None], stop: Callable[[], None]) -> None:
        self.wish: Wish = "serve"
        self._label = label
        self._wake = wake
        self._stop = stop

    @property
    def quiet(self) -> bool:
        return self.wish != "serve"

    def hear(self, wish: Wish) -> None:
        """On the pod's loop, with every beat."""
        if wish == self.wish:
            return
        self.wish = wish
        match wish:
            case "quiet":
                log.warning(
                    "pod %s was asked to be quiet: it claims nothing more, and what runs goes on", self._label()
                )
            case "serve":
                log.warning("pod %s was asked to serve again", self._label())
                self._wake()
            case "stop":
                log.warning("pod %s was asked to stop", self._label())
                self._stop()
