"""Five ways for a run to end other than well, and what becomes of the job."""

import asyncio
from collections import Counter

from treadle import App, Context, Fail, JobFailed, Retry, RetryAfter, Snooze, Throttle

app = App()
calls: Counter[str] = Counter()  # of this process: how often the far side was asked


@app.task(retry=Retry(max_attempts=5, base="500ms", factor=2, jitter=0))
async def deliver(ctx: Context) -> None:
    if ctx.attempt < 3:
        raise ConnectionError("503")  # any exception: again after 0.5 s, then 1 s, 2 s, 4 s


@app.task(retry=3)
async def ask_bank(ctx: Context) -> None:
    if ctx.attempt == 1:
        raise RetryAfter("1s")  # the far side said when: again after exactly so long


@app.task
async def export() -> None:
    calls["export"] += 1
    if calls["export"] == 1:
        raise Snooze("1s")  # not an error, only too early: costs no attempt


@app.task(queue="sms")
async def send_sms() -> None:
    calls["sms"] += 1
    if calls["sms"] == 1:
        raise Throttle("2s")  # 429: the whole queue cools, 5 s at least, longer each time; costs no attempt


@app.task
async def charge() -> None:
    raise Fail("the card has expired")  # no retry can help: ends at once


async def main() -> None:
    async with app.worker():
        handles = [await task.enqueue() for task in (deliver, ask_bank, export, send_sms, charge)]
        for handle in handles:
            try:
                await handle.result(timeout="30s")
            except JobFailed:
                pass  # told below, with the rest
            job = await handle.status()
            counts = f"attempts {job.attempt}, snoozes {job.snoozes}, throttles {job.throttles}"
            why = f"  ({job.error.message})" if job.error else ""
            print(f"{job.task.removeprefix('jobs.'):<9} {job.state:<9} {counts}{why}")


if __name__ == "__main__":
    asyncio.run(main())
