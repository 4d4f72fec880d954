"""`treadle doctor`: check the whole, and say what helps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import click

from .. import __version__
from ..config import SETTINGS, Config, masked, shown
from ..core.errors import SchemaTooNew, SchemaTooOld, StorageUnavailable
from ..operate import doctor as checks
from .command import Invocation, verb
from .errors import DONE, UNHEALTHY
from .target import url_of, with_any_schema, with_storage

if TYPE_CHECKING:
    from ..ports import Fact

MARKS: Final = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "error": ("✗", "red")}


@verb(
    "doctor", "treadle doctor", "treadle doctor --check --json        # for a probe: exit code 4 if anything is wrong"
)
@click.option("--check", is_flag=True, help="Print only what is not in order.")
def doctor(call: Invocation, check: bool) -> int:
    """Check storage, schema, clocks, pods, queues, schedules and jobs. Exit code 4 if something is wrong (✗)."""
    config = call.config()
    facts = [checks.python(), *examine(config)]
    healthy = all(fact.level != "error" for fact in facts)
    told = [fact for fact in facts if not check or fact.level != "ok"]
    if call.out.as_json:
        call.out.data({"healthy": healthy, "checks": [_json(fact) for fact in told], "settings": _settings(config)})
    else:
        _print(call, told)
        if not check:
            _print_settings(call, config)
    return DONE if healthy else UNHEALTHY


def examine(config: Config) -> list[Fact]:
    """All that can be found out; if the storage does not answer, that is all."""
    try:
        status = with_any_schema(config, lambda storage: storage.schema())
        facts = [checks.reachable(masked(url_of(config)), __version__), checks.schema(status)]
    except SchemaTooNew as error:
        return [checks.too_new(str(error))]
    except StorageUnavailable as error:
        return [checks.unreachable(str(error))]
    try:
        return facts + with_storage(config, lambda app: checks.examine(app.client))
    except SchemaTooOld:
        return facts  # checks.schema has said so
    except StorageUnavailable as error:
        return [*facts, checks.unreachable(str(error))]


def _print(call: Invocation, facts: Iterable[Fact]) -> None:
    for fact in facts:
        mark, colour = MARKS[fact.level]
        code = "" if fact.level == "ok" else f"  [{fact.code}]"
        call.out.line(f"{call.out.paint(mark, colour)} {fact.text}{call.out.paint(code, 'bright_black')}")
        if fact.remedy and fact.level != "ok":
            call.out.line(f"    {fact.remedy}")


def _print_settings(call: Invocation, config: Config) -> None:
    call.out.line("")
    chosen = [each for each in _settings(config) if each["source"] != "default"]
    for each in chosen:
        call.out.line(f"  {each['name']} = {each['value']}  ({each['source']})")
    left = len(SETTINGS) - len(chosen)
    call.out.line(f"  {'the other ' if chosen else 'all '}{left} settings have their defaults (--json lists them)")


def _settings(config: Config) -> list[dict[str, Any]]:
    return [
        {"name": each.name, "value": shown(each.name, config.value(each.name)), "source": config.sources[each.name]}
        for each in SETTINGS
    ]


def _json(fact: Fact) -> dict[str, str]:
    return {"code": fact.code, "level": fact.level, "text": fact.text, "remedy": fact.remedy}
