"""The app of the process executor's tests: imported by the tests, and again by every child."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from treadle import App, Cancel, Context, Fail, ResultTimeout, Retry, RetryAfter, Snooze, Throttle, Wait


@asynccontextmanager
async def lifespan(app: App) -> AsyncGenerator[dict[str, Any]]:
    yield {"pid": os.getpid(), "entered": time.monotonic()}


app = App("memory://", lifespan=lifespan)
app.limit("far-side", "100/s", burst=100)


class Odd(Exception):
    pass


class Odder(Odd):
    pass


@dataclass
class Point:
    x: int
    y: int


@app.task(name="double", executor="process")
def double(value: int) -> dict[str, int]:
    return {"twice": value * 2, "pid": os.getpid()}


@app.task(name="adouble", executor="process")
async def adouble(value: int) -> dict[str, int]:
    await asyncio.sleep(0)
    return {"twice": value * 2, "pid": os.getpid()}


@app.task(name="typed", executor="process")
def typed(point: Point) -> Point:
    assert isinstance(point, Point)
    return Point(point.y, point.x)


@app.task(name="act", executor="process", retry=Retry.fixed("20ms", max_attempts=3, jitter=0))
def act(ctx: Context, what: str, word: str = "") -> Any:
    return do(ctx, what, word)


@app.task(name="aact", executor="process", retry=Retry.fixed("20ms", max_attempts=3, jitter=0))
async def aact(ctx: Context, what: str, word: str = "") -> Any:
    if what == "sleep":
        await asyncio.sleep(60)
    return do(ctx, what, word)


@app.task(name="inside", retry=Retry.fixed("20ms", max_attempts=5, jitter=0))
async def inside(ctx: Context, what: str, word: str = "") -> Any:
    """On the loop of the pod, unless it is a suspect."""
    return do(ctx, what, word)


def loud_square(value: int) -> int:
    logging.getLogger("shop").warning("squares %d", value)
    return value * value


def do(ctx: Context, what: str, word: str) -> Any:
    match what:
        case "pid":
            return os.getpid()
        case "sleep":
            time.sleep(60)
        case "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(60)
        case "grandchild":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
            ctx.log.info("grandchild %d", child.pid)
            time.sleep(60)
        case "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
            time.sleep(60)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)
        case "exit":
            os._exit(7)
        case "close":
            os.closerange(3, 256)
        case "garble":
            for number in range(3, 64):
                try:
                    os.write(number, b"\xff" * 64)
                except OSError:
                    pass
            time.sleep(60)
        case "sys.exit":
            sys.exit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "cancelled":
            raise asyncio.CancelledError
        case "recursion":
            return do(ctx, what, word)
        case "odd":
            raise Odder(word)
        case "retry":
            raise RetryAfter(0.02, "again")
        case "snooze":
            raise Snooze(7)
        case "throttle":
            raise Throttle(3)
        case "fail":
            raise Fail("never")
        case "cancel":
            raise Cancel("not wanted")
        case "log":
            logging.getLogger("shop").warning("from a child: %s", word, extra={"order": 7})
            ctx.log.info("of its own")
        case "print":
            print("to stdout")
            print("to stderr", file=sys.stderr)
        case "flood":
            sys.stdout.write("x" * 50_000_000)
            sys.stdout.flush()
        case "change the process":
            os.chdir("/")
            os.environ["CHANGED"] = "yes"
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            random.seed(1)
            return random.random()
        case "look at the process":
            return [os.getcwd(), os.environ.get("CHANGED"), signal.getsignal(signal.SIGTERM) is signal.SIG_IGN]
        case "verbs":
            handle = ctx.enqueue_sync(double.bind(4))
            ctx.follow(double.using(delay="1h").bind(5))
            ctx.limit_sync("far-side")
            ctx.set_meta(colour="red")
            ctx.progress_sync(3, 10, "pages")
            seen = ctx.last_progress_sync()
            assert seen is not None
            assert (seen.done, seen.note) == (3, "pages")
            ctx.checkpoint_sync({"at": 3})
            assert ctx.resume_sync() == {"at": 3}
            return {"result": handle.result_sync(timeout="10s")["twice"], "state": handle.status_sync().state}
        case "wait":
            if not ctx.has_answer:
                token = ctx.answer_token_sync()
                ctx.log.info("token %s", token)
                raise Wait(token)
            return ctx.answer_sync()
        case "own queue":
            handle = ctx.enqueue_sync(double.using(queue="alone").bind(1))
            try:
                handle.result_sync(timeout=0)
            except ResultTimeout as error:
                handle.cancel_sync()
                return str(error)
        case "enqueue by the app":
            double.enqueue_sync(1)
        case "state":
            return {"state": ctx.state, "pid": os.getpid(), "left": ctx.remaining(), "slot": ctx.slot}
        case "until stopping":
            while not ctx.stopping:
                time.sleep(0.01)
            return "stopping"
        case "stubborn":
            try:
                time.sleep(60)
            except BaseException:
                assert ctx.cancelled
            return "all the same"
        case "unkept":
            return object()
        case "log by a factory":
            factory = logging.getLogRecordFactory()

            def own(*args: Any, **kwargs: Any) -> logging.LogRecord:
                record = factory(*args, **kwargs)
                record.shop = "here"
                return record

            logging.setLogRecordFactory(own)
            logging.getLogger("shop").warning("with more than usual")
            logging.setLogRecordFactory(factory)
        case "fork":
            with multiprocessing.get_context("fork").Pool(2) as pool:  # which ends them by SIGTERM
                return sum(pool.map(loud_square, range(20)))
        case "odd text":
            logging.getLogger("shop").warning("a name: %s", "\udcff", extra={"file": "\udcff"})
            ctx.log.info("a name: \udcff")
            raise Fail("a name: \udcff")
        case "long text":
            logging.getLogger("shop").warning("much", extra={"blob": "x" * (65 << 20)})
            raise Fail("x" * (65 << 20))
        case _:
            raise AssertionError(what)


@app.task(name="hungry", executor="process", memory="64MiB", retry=2)
def hungry(size: int) -> int:
    return len(bytearray(size << 20))


@app.task(name="busy", executor="process", cpu="1s", retry=1)
def busy(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


@app.task(name="choosy", executor="process", retry=Retry(max_attempts=5, base=0.01, give_up_on=(Odd, KeyError)))
def choosy(what: str) -> None:
    raise Odder(what) if what == "odd" else KeyError(what) if what == "key" else ValueError(what)
