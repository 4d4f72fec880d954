import asyncio

from treadle import App

app = App()  # TREADLE_URL, else the file treadle.db here


@app.task
async def hello(name: str) -> str:
    return f"Hello, {name}!"


async def main() -> None:
    async with app.worker():
        job = await hello.enqueue("Ada")
        print(await job.result(timeout="10s"))


if __name__ == "__main__":
    asyncio.run(main())
