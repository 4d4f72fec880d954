import asyncio

from treadle import App

app = App()  # TREADLE_URL, else sqlite:///treadle.db


@app.task(queue="mail", timeout="30s")
async def welcome(name: str) -> str:
    return f"Welcome, {name}!"


async def main() -> None:
    async with app.worker(queues=["mail"]):
        handle = await welcome.enqueue("Ada")
        print(await handle.result(timeout="10s"))


if __name__ == "__main__":
    asyncio.run(main())
