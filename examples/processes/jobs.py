"""Work for the processor, and work that cannot be trusted, each in a child process of the worker."""

from __future__ import annotations

import os
import signal

from treadle import App, Context, Retry

app = App()


@app.task(executor="process", memory="512MiB", cpu="30s", timeout="1m")
def primes(ctx: Context, below: int) -> int:
    """Counts primes: on the worker's own loop it would stop everything else."""
    sieve = bytearray([1]) * below
    sieve[:2] = b"\0\0"
    for number in range(2, int(below**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, below, number)))
    ctx.log.info("sieved up to %d", below)
    return sum(sieve)


@app.task(executor="process", memory="64MiB", retry=Retry.none())
def greedy() -> int:
    return len(bytearray(1 << 30))


@app.task(executor="process", retry=Retry.none())
def crashes() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)  # as a broken C extension does


if __name__ == "__main__":
    for call in (primes.bind(1_000_000), greedy.bind(), crashes.bind()):
        app.enqueue_sync(call)
    app.close_sync()
