"""A task in POSIX shell, done by a process that lives as long as the worker."""

import asyncio
from pathlib import Path

from treadle import App, JobFailed

app = App("memory://")
shell = app.pool("shell", ["/bin/sh", str(Path(__file__).parent.absolute() / "worker.sh")])


@shell.task(name="shell.repeat")
def repeat(word: str, times: int = 3) -> str:
    """Say it again."""


async def main() -> None:
    async with app.worker():
        print(await (await repeat.enqueue("ho")).result(timeout="20s"))
        print(await (await repeat.enqueue("hey", times=2)).result(timeout="20s"))
        try:
            await (await repeat.enqueue("stop")).result(timeout="20s")
        except JobFailed as error:
            print(error.args[0].partition(" failed ")[2])


if __name__ == "__main__":
    asyncio.run(main())
