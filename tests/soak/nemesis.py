"""The nemesis: does harm by a seed, kind after kind from a shuffled deck, so that none is forgotten, and heals it."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from tests.journeys.stage import QUICK
from treadle.client.client import new_id

from .actors import Clients, Fleet, Worker, a_poison
from .ground import Ground, PostgresGround, SQLiteGround
from .soak_app import note, work

EVERYWHERE: Final = ("kill", "stop and continue", "graceful restart", "poison job")
_HOLD = (
    "import sqlite3, sys\n"
    "db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)\n"
    "db.execute('begin exclusive')\n"
    "print('held', flush=True)\n"
    "sys.stdin.read()\n"
    "db.execute('rollback')\n"
)


class Undo:
    """The end of a fault: at its time, whatever the nemesis is waiting for just then, or at once; but once only."""

    def __init__(self, seconds: float, act: Callable[[], None]) -> None:
        self._act = act
        self._once = threading.Lock()
        self.done = False
        self._timer = threading.Timer(seconds, self.now)
        self._timer.daemon = True
        self._timer.start()

    def now(self) -> None:
        self._timer.cancel()
        with self._once:
            if not self.done:
                self.done = True
                self._act()


class Nemesis:
    def __init__(self, ground: Ground, fleet: Fleet, clients: Clients, seed: str) -> None:
        self._ground = ground
        self._fleet = fleet
        self._clients = clients
        self._chance = random.Random(f"{seed}/nemesis")
        self._undoing: list[Undo] = []
        self.kinds = (*EVERYWHERE, *ground.kinds)
        self.fired: Counter[str] = Counter()
        self.kills = 0
        self.on_tick: Callable[[], None] = lambda: None

    # Time ------------------------------------------------------------------------------------------------------------

    def torment(self, seconds: float) -> None:
        """First only workers die, so that it is seen how soon their jobs are claimed again. Then everything: the first
        deck is played to its end, however long that takes, and kills come in between."""
        begun = time.monotonic()
        pause = min(2.0, 0.4 * seconds / len(self.kinds))
        while time.monotonic() < begun + 0.2 * seconds:
            self._do(self._chance.choice(("kill", "kill", "graceful restart")))
            self.rest(self._chance.uniform(0.7, 1.3) * max(1.5, pause))
        rounds = 0
        while rounds == 0 or time.monotonic() < begun + seconds:
            deck = [*self.kinds, "kill", "kill", "kill", "stop and continue"]
            self._chance.shuffle(deck)
            for kind in deck:
                if rounds and time.monotonic() > begun + seconds:
                    break
                self._do(kind)
                self.rest(self._chance.uniform(0.3, 1.7) * pause)
            rounds += 1

    def _do(self, kind: str) -> None:
        note("fault", how=kind)
        getattr(self, f"_{kind.replace(' ', '_').replace('-', '_')}")()
        self.fired[kind] += 1

    def rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            self.tick()
            if time.monotonic() > until:
                return
            time.sleep(0.03)

    def tick(self) -> None:
        self._fleet.tick()
        self.on_tick()

    def _in(self, seconds: float, act: Callable[[], None]) -> None:
        self._undoing = [each for each in self._undoing if not each.done]
        self._undoing.append(Undo(seconds, act))

    def heal(self) -> None:
        """Everything that was to be undone later is undone now."""
        for each in self._undoing:
            each.now()
        self._fleet.tick()

    def _victim(self, *, running: bool = False) -> Worker:
        able = [each for each in self._fleet.workers if not each.leaving and not (running and each.stopped)]
        return self._chance.choice(able or self._fleet.workers)

    # Processes -------------------------------------------------------------------------------------------------------

    def _kill(self) -> None:
        victim = self._victim()
        victim.seen = time.time()
        victim.send(signal.SIGKILL)
        victim.process.wait()
        self.kills += 1

    def _stop_and_continue(self) -> None:
        victim = self._victim(running=True)
        victim.stopped = True
        victim.send(signal.SIGSTOP)

        def go_on() -> None:
            victim.stopped = False
            victim.send(signal.SIGCONT)

        # Most end about when the lease does: there the races are.
        leases = self._chance.choice([0.1, self._chance.uniform(0.8, 1.4), self._chance.uniform(0.8, 1.4), 3.0])
        self._in(leases * QUICK["lease"], go_on)

    def _graceful_restart(self) -> None:
        victim = self._victim(running=True)
        victim.leaving = True
        victim.send(signal.SIGTERM)

    def _poison_job(self) -> None:
        for _ in range(10):
            if self._clients.enqueue([a_poison(new_id())]):
                return
            self.rest(0.5)

    # SQLite ----------------------------------------------------------------------------------------------------------

    def _lock_holder(self) -> None:
        """Another process has SQLite's write lock, and knows nothing of Treadle."""
        assert isinstance(self._ground, SQLiteGround)
        command = [sys.executable, "-c", _HOLD, str(self._ground.database)]
        outsider = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._in(self._chance.uniform(0.5, 1.5) * QUICK["lease"], lambda: _let_go(outsider))

    def _disk_full(self) -> None:
        assert isinstance(self._ground, SQLiteGround)
        filler = self._ground.disk / "filler"
        with filler.open("ab", buffering=0) as file:
            for size in (1 << 20, 512):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"\0" * size)
        for _ in range(20):  # until even the ballast is used up
            if not self._clients.enqueue([work.using(id=new_id()).bind("x" * 400_000)]):
                break
        self._in(self._chance.uniform(0.5, 1.2) * QUICK["lease"], lambda: filler.unlink(missing_ok=True))

    # PostgreSQL ------------------------------------------------------------------------------------------------------

    @property
    def _server(self) -> PostgresGround:
        assert isinstance(self._ground, PostgresGround)
        return self._ground

    def _ended_session(self) -> None:
        sessions = self._server.sessions()
        for pid in self._chance.sample(sessions, min(len(sessions), self._chance.randint(1, 4))):
            self._server.ask("select pg_terminate_backend(%s)", pid)

    def _server_restart(self) -> None:
        self._server.restart()

    def _server_kill(self) -> None:
        self._server.kill()

    def _cut_connections(self) -> None:
        self._server.proxy.cut()
        if self._chance.random() < 0.5:
            self._server.proxy.refuse = True
            self._in(self._chance.uniform(0.2, 4.0), self._accept)

    def _accept(self) -> None:
        self._server.proxy.refuse = False

    def _half_open_connections(self) -> None:
        self._server.proxy.mute()
        self._in(self._chance.uniform(0.3, 4.0), self._server.proxy.unmute)

    def _slow_network(self) -> None:
        self._server.proxy.delay = (0.0, self._chance.choice([0.05, 0.3]))
        self._in(self._chance.uniform(1.0, 5.0), self._in_time)

    def _in_time(self) -> None:
        self._server.proxy.delay = None

    def _clock_shift(self) -> None:
        """A host whose clock is wrong comes instead of one whose clock is right."""
        self._kill()
        self._fleet.start(skew=self._chance.choice([-7200.0, -40.0, 40.0, 7200.0]))


def _let_go(outsider: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired, OSError):
        outsider.communicate(timeout=10)
    if outsider.poll() is None:
        outsider.kill()
        outsider.wait()
