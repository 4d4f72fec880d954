"""The tasks of `treadle demo`: those of a small shop, on an App of their own.

They sleep where real ones would call somebody. What the far side does is decided by the scene: a webhook is refused as
often as its arguments say, and two files in the demo's folder, where its workers run, stand for the rest of the world.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

from ..app import App
from ..context.context import Context
from ..core.backoff import Retry
from ..core.outcome import Fail, Snooze, Throttle

# What one worker serves, with slots. Few slots, so that there is something to see.
QUEUES: Final = {"mail": 2, "images": 2, "webhooks": 2, "reports": 4, "sms": 1, "orders": 1}

SMS_REFUSES: Final = "sms-provider-refuses"
EXPORT: Final = "export.csv"
PAGES: Final = 10  # of a report

app = App()


@app.task(name="mail.newsletter", queue="mail")
async def newsletter(user_id: int) -> None:
    await asyncio.sleep(0.2 + user_id % 7 * 0.03)


@app.task(name="mail.receipt", queue="mail")
async def receipt(order_id: int) -> None:
    await asyncio.sleep(0.1)


@app.task(name="images.thumbnail", queue="images")
def thumbnail(photo: str) -> str:
    time.sleep(0.15 + len(photo) % 4 * 0.04)  # a plain function: it runs in a thread
    return f"thumbnails/{photo}"


@app.task(name="webhooks.deliver", queue="webhooks", retry=Retry(max_attempts=3, base="1s", factor=2, jitter=0.2))
async def deliver(ctx: Context, event_id: int, refusals: int = 0) -> None:
    await asyncio.sleep(0.2)
    if ctx.attempt <= refusals:
        raise ConnectionError("503 Service Unavailable")


@app.task(name="reports.monthly", queue="reports")
async def monthly(ctx: Context, customer: str, seconds: float = 2.0) -> None:
    async for page in ctx.iterate(range(1, PAGES + 1), every=0):  # after a crash it goes on behind the last one
        await asyncio.sleep(seconds / PAGES)
        await ctx.progress(page, PAGES, f"page {page} of {PAGES}")


@app.task(name="reports.export", queue="reports")
def export(month: str) -> None:
    if not Path(EXPORT).exists():
        raise Snooze("2s")


@app.task(name="sms.send", queue="sms")
def sms(number: str) -> None:
    if Path(SMS_REFUSES).exists():
        raise Throttle("3s")  # the provider said 429, Retry-After: 3
    time.sleep(0.4)


@app.task(name="orders.charge", queue="orders")
async def charge(order_id: int, card: str = "valid") -> None:
    await asyncio.sleep(0.3)
    if card == "expired":
        raise Fail("the card has expired")


@app.task(name="orders.sync_stock", queue="orders")
async def sync_stock(warehouse: str) -> None:
    await asyncio.sleep(0.5)


@app.task(name="orders.remind", queue="orders")
async def remind(cart_id: int) -> None:
    await asyncio.sleep(0.1)
