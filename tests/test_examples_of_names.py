"""Every name that `import treadle` gives has a docstring with an example, and each example holds."""

from __future__ import annotations

import asyncio
import doctest
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import treadle
from treadle import App, Context, JobFailed

FLAGS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL | doctest.NORMALIZE_WHITESPACE
# An alias of a type has no docstring of its own; its module's has the example.
ALIASES = {"Middleware": "treadle.middleware"}
NAMES = [name for name in treadle.__all__ if name != "__version__" and name not in ALIASES]


@pytest.fixture(scope="module")
def scene() -> Iterator[dict[str, Any]]:
    """What the examples find there: an app, a task that sends mail, a job of it that succeeded and one that failed."""
    app = App("memory://")
    app.limit("slack", "1/m")

    @app.task(name="send", queue="mail", retry=1, description="sends a mail")
    async def send(ctx: Context, user: int) -> str:
        ctx.log.info("to %d", user)
        await ctx.progress(1, 2, "half")
        if user == 13:
            raise ConnectionError("the far side is down")
        return f"sent to {user}"

    async def scene_of() -> tuple[Any, Any]:
        async with app.worker(["mail"], children=False):
            good, bad = await send.enqueue(7), await send.enqueue(13)
            await good.result(timeout=60)
            with pytest.raises(JobFailed):
                await bad.result(timeout=60)
            return good, bad

    sent, failed = asyncio.run(scene_of())
    yield {"app": app, "send": send, "sent": sent, "failed": failed}
    app.close_sync()


@pytest.mark.parametrize("name", NAMES)
def test_a_name_has_an_example_that_holds(scene: dict[str, Any], name: str) -> None:
    """An example is what a prompt shows. Without one, `help(treadle.JobView)` says what it is, and not how to come by
    it."""
    value = getattr(treadle, name)
    text = inspect.getdoc(value) if "__doc__" in vars(value) else None
    assert text, f"{name} has no docstring"
    names = {each: getattr(treadle, each) for each in treadle.__all__}
    example = doctest.DocTestParser().get_doctest(text, {**names, **scene}, name, None, None)
    assert example.examples, f"{name} has no example: lines that begin with >>>, and what they answer"
    report: list[str] = []
    failed, _ = doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(example, out=report.append)
    assert not failed, "".join(report)


@pytest.mark.parametrize("name", ALIASES)
def test_an_alias_is_shown_by_its_module(name: str) -> None:
    import importlib

    module = importlib.import_module(ALIASES[name])
    assert name in vars(module)
    assert f"@app.{name.lower()}" in (module.__doc__ or "")
