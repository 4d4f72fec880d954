"""The tasks of a small shop, for pages to look at: some succeed, some fail in several ways, some take long."""

from __future__ import annotations

import asyncio
import logging
import time

from treadle import AnswerFailed, App, Context, Fail, Registry, Retry, Wait

log = logging.getLogger("shop")
log.addHandler(logging.NullHandler())

registry = Registry()


class CardDeclined(Exception):
    pass


@registry.task(name="shop.mail.welcome", queue="mail")
async def welcome(user_id: int, note: str = "") -> str:
    """Greets a new customer."""
    await asyncio.sleep(0.01)
    return f"sent to {user_id}"


@registry.task(name="shop.mail.receipt", queue="mail", retry=Retry(max_attempts=1))
async def receipt(order_id: int) -> str:
    log.info("rendering the receipt of order %s", order_id)
    return f"receipt {order_id}"


def connect(host: str) -> None:
    raise TimeoutError(f"no answer from {host} within 5 s")


@registry.task(name="shop.billing.charge", queue="billing", retry=Retry(max_attempts=1))
async def charge(order_id: int, amount: float, token: str = "tok_secret_canary") -> str:
    if order_id % 3 == 0:
        raise CardDeclined(f"order {order_id}: card declined (insufficient funds)")
    connect("payments.example.com")
    return "charged"


@registry.task(name="shop.webhooks.deliver", queue="webhooks", retry=Retry(max_attempts=5, base="5m", factor=2))
async def deliver(event_id: int, url: str) -> None:
    try:
        connect("hooks.example.com")
    except TimeoutError as error:
        raise ConnectionError(f"503 Service Unavailable: {url}") from error


@registry.task(name="shop.images.thumbnail", queue="images", retry=Retry(max_attempts=1))
def thumbnail(photo: str) -> str:
    if photo.endswith(".gif"):
        raise ValueError(f"cannot identify image file {photo!r}")
    time.sleep(0.01)
    return f"thumbnails/{photo}"


@registry.task(name="shop.reports.nightly", queue="reports", timeout="10m")
async def nightly(ctx: Context, day: str = "today") -> None:
    log.warning("report of %s", day)
    for n in range(1, 600):
        progress = getattr(ctx, "progress", None)
        if progress is not None:
            done = progress(n * 7 % 600, 600, note="adding up orders")
            if asyncio.iscoroutine(done):
                await done
        await asyncio.sleep(1)


@registry.task(name="shop.search.reindex", queue="search")
async def reindex(full: bool = False) -> int:
    return 1204


@registry.task(name="shop.billing.approve", queue="approvals", retry=Retry(max_attempts=1))
async def approve(ctx: Context, order_id: int) -> object:
    """Waits for a person."""
    if ctx.has_answer:
        try:
            return await ctx.answer()
        except AnswerFailed as refused:
            raise Fail(f"order {order_id}: {refused.error}") from None
    raise Wait(await ctx.answer_token("1h"))


def include(app: App) -> None:
    app.include(registry)
