# pyright: strict
"""Mistakes. Every line that ends in `# error` must be reported by both checkers, and no other line."""

from __future__ import annotations

from typing import Literal

from treadle import App, Context, Retry, Snooze, Unique

app = App("memory://")


@app.task(queue="mail", retry=Retry(max_attempts=5), timeout="30s")
async def welcome(ctx: Context, user_id: int) -> str:
    ctx.follow(resize)  # error
    await ctx.enqueue(resize.bind(5))  # error
    return f"{user_id}"


@app.task
def resize(path: str, *, width: int = 100) -> int:
    return len(path) * width


async def calls(ctx: Context) -> None:
    await welcome.enqueue("42")  # error
    await welcome.enqueue()  # error
    await welcome.enqueue(ctx, 42)  # error
    await welcome.enqueue(42, 43)  # error
    await welcome.enqueue(userid=42)  # error
    await welcome("42")  # error
    resize(5)  # error
    resize.enqueue_sync(5)  # error
    resize.enqueue_sync("a.png", 5)  # error
    resize.enqueue_sync("a.png", width="5")  # error
    welcome.bind(userid=42)  # error
    await resize.enqueue_sync("a.png")  # error


async def handles() -> None:
    welcome.handle(42)  # error
    number: int = await welcome.handle("id").result()  # error
    await app.handle()  # error
    print(number)


async def options() -> None:
    welcome.using(priority="high")  # error
    welcome.using(prioritty=5)  # error
    welcome.using(delay=[5])  # error
    welcome.using(tags=[5])  # error
    welcome.using(unique=5)  # error
    await welcome.using(delay="5m").enqueue("42")  # error
    resize.using(priority=5).enqueue_sync(5)  # error
    await app.enqueue("other.task", {"a": 1}, prioritty=5)  # error
    await app.enqueue("other.task", [1])  # error
    app.queues.pause("mail", until="1h")  # error


async def results() -> None:
    n: int = await (await welcome.enqueue(42)).result()  # error
    s: str = resize.enqueue_sync("a.png").result_sync()  # error
    m: int = welcome.bind(42)  # error
    o: Literal["done"] = (await welcome.enqueue(42)).outcome  # error
    await (await welcome.enqueue(42)).result(timeout=[])  # error
    print(n, s, m, o)


async def many() -> None:
    await app.enqueue_many([welcome])  # error
    await app.enqueue_many([welcome.enqueue(42)])  # error
    await app.enqueue_many([42])  # error
    app.enqueue_many_sync([resize])  # error
    await app.enqueue(welcome)  # error


Retry("5")  # error
Retry(max_attempt=5)  # error
Unique(periode="1h")  # error
Snooze()  # error
App(queue="mail")  # error


@app.task(timeout=[30])  # error
async def wrong_timeout() -> None: ...


@app.task(executor="forked")  # error
def wrong_executor() -> None: ...


@app.task(retries=5)  # error
def unknown_option() -> None: ...


@app.on("finished")  # error
def wrong_hook(job: object) -> None: ...


@app.cron("0 9 * * *")  # error
@app.task
async def needs_an_argument(user_id: int) -> None: ...


@app.every("10m", misfire="never")  # error
@app.task
async def wrong_misfire() -> None: ...


app.queue("mail", speed=3)  # error


app.queue("mail", backoff="custom")  # error


@app.task(batch=10, within="2s")
async def index(items: list[int]) -> None: ...


async def gathered() -> None:
    await index.enqueue("a")  # error
    await index.enqueue([1, 2])  # error
    await index.enqueue(1, 2)  # error
    Unique(on_conflict="keep")  # error


@app.task(batch=10)  # error
async def one(item: int) -> None: ...


@app.command("/bin/echo", "{word}")
def say(word: str) -> None: ...


async def outside() -> None:
    await say.enqueue(1)  # error
    await say.enqueue()  # error
    await say.enqueue("a", times=2)  # error


async def words_of_other_systems(ctx: Context) -> None:
    welcome.using(countdown=5)  # error
    await welcome.delay(1)  # error
    (await welcome.enqueue(1)).get()  # error
    ctx.retry()  # error
    App(broker="redis://")  # error
    app.send_task("send")  # error
    Retry(max_retries=3)  # error


app.command("/bin/echo", stdout="x")  # error
app.pool("thumbs", "/usr/bin/node worker.js", sizes=2)  # error
app.http("https://hooks.example.com/x", follow_redirects=True)  # error
