"""Tasks in JavaScript: declared here, done by two Node processes that live as long as the worker."""

import asyncio
from pathlib import Path

from treadle import App, JobFailed

app = App("memory://")
here = Path(__file__).parent.absolute()
thumbs = app.pool("thumbs", ["/usr/bin/node", "worker.js"], size=2, cwd=here, heartbeat="10s")


@thumbs.task(name="thumbs.make")
def make(source: str, widths: list[int]) -> dict[str, object]:
    """Make small pictures of a large one."""


@thumbs.task(name="thumbs.refuse", retry=1)
def refuse(why: str) -> None: ...


async def main() -> None:
    async with app.worker():
        jobs = [await make.enqueue(f"cat-{n}.png", [100, 200]) for n in range(3)]
        for job in jobs:
            print(await job.result(timeout="20s"))
        try:
            await (await refuse.enqueue("not a picture")).result(timeout="20s")
        except JobFailed as error:
            print(error.args[0].partition(" failed ")[2])


if __name__ == "__main__":
    asyncio.run(main())
