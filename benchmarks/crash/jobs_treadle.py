"""Treadle, as `treadle worker -A` finds it."""

from __future__ import annotations

import sys

from treadle import App

from . import marks

app = App()


@app.task(name="act")
async def act(kind: str, number: int) -> None:
    await marks.act(kind, number)


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    if verb == "install":
        app.open_sync()
    else:
        app.enqueue_many_sync([act.bind(rest[0], number) for number in range(int(rest[1]))])
    app.close_sync()
