"""System: is all in order, what is it made of, and what are its settings; with a report to copy. And the help."""

from __future__ import annotations

import asyncio
import platform
import time

from starlette.responses import Response

from ... import __version__
from ...config import SETTINGS, masked, shown
from ...core import glossary
from ...core.fact import Fact, bounded
from ...operate import doctor
from ..plain import plain
from ..routing import Call, Routes
from .frame import render

routes = Routes()

MARKS = {"ok": "✓", "warn": "!", "error": "✗"}


@routes.page("GET", "/system", action="see")
async def system(call: Call[None, None]) -> Response:
    """Checks, facts, settings."""
    web, app = call.web, call.app
    config = web.whole.config
    facts, status, vitals = await asyncio.gather(
        web.counts.get(("doctor",), lambda: doctor.examine(app.client)),
        app.client.ask(lambda storage: storage.schema()),
        app.client.ask(lambda storage: storage.vitals()),
    )
    facts = bounded([doctor.python(), doctor.schema(status), *facts])
    settings = [(each.name, shown(each.name, config.value(each.name)), config.sources[each.name]) for each in SETTINGS]
    about = {
        "Treadle": __version__,
        "Python": f"{platform.python_version()} on {platform.system()}",
        "Storage": masked(web.whole.url),
        "Schema": f"{status.current} of {status.newest}",
        "Wake-ups": "work" if app.storage.signals_work else "do not work here: pods poll",
        "This process is up": f"{time.monotonic() - web.started:.0f} s",
    }
    return await render(
        call,
        "system.html",
        title="System",
        page="system",
        topics="pods queues",
        facts=sorted(facts, key=lambda fact: ("error", "warn", "ok").index(fact.level)),
        healthy=all(fact.level == "ok" for fact in facts),
        about=about,
        vitals={name: value for name, value in plain(vitals).items() if value is not None},
        chosen=[each for each in settings if each[2] != "default"],
        built_in=[each for each in settings if each[2] == "default"],
        report=_report(about, facts, [each for each in settings if each[2] != "default"]),
    )


def _report(about: dict[str, str], facts: list[Fact], settings: list[tuple[str, str, str]]) -> str:
    """For a bug report: plain text, with nothing in it that the page does not show. What changes by the second is left
    out, so that the page does not change with it."""
    lines = [f"{name}: {value}" for name, value in about.items() if name != "This process is up"]
    lines += ["", *(f"{MARKS[fact.level]} {fact.text} [{fact.code}]" for fact in facts)]
    lines += ["", *(f"{name} = {value} ({source})" for name, value, source in settings)]
    return "\n".join(lines)


@routes.page("GET", "/help", action="see")
async def help_(call: Call[None, None]) -> Response:
    """The filter language, the keys, and what the labels mean."""
    return await render(call, "help.html", title="Help", page="", glossary=glossary.LABELS)
