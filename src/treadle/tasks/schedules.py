"""Declaring schedules: `@app.cron(…)` and `@app.every(…)` above `@app.task`.

Whatever can be wrong is said here, where it is written: the expression, the zone, arguments that do not fit the task.
The queue is looked up later, by the app that includes the registry: its router may choose it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload

from msgspec import Struct

from ..context.context import Call
from ..core import names
from ..core.duration import Duration, seconds, words
from ..core.errors import ConfigError, PayloadError
from ..core.job import NewJob

if TYPE_CHECKING:
    from ..core.schedule import Misfire, Overlap, Plan


class AnyTask(Protocol):
    """What can be scheduled: a Task."""

    name: str

    def bind_named(self, arguments: Mapping[str, object]) -> Call[Any]: ...
    def using(self, *, queue: str | None = None, priority: int | None = None) -> Any: ...


class ArglessTask(AnyTask, Protocol):
    """A Task that can be called without arguments."""

    def bind(self) -> Call[Any]: ...


TaskT = TypeVar("TaskT", bound=AnyTask)
ArglessT = TypeVar("ArglessT", bound=ArglessTask)


class Entry(Struct, frozen=True):
    """One declared schedule."""

    name: str
    task: Any
    call: Call[Any]
    expression: str
    fields: dict[str, Any]
    at_once: bool = False


class Timetable:
    """The schedules of a Registry, by name."""

    def __init__(self) -> None:
        self.timetable: dict[str, Entry] = {}

    @overload
    def cron(
        self,
        expression: str,
        *,
        tz: str = "UTC",
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        misfire: Misfire = "coalesce",
        catch_up: int = ...,
        overlap: Overlap = "allow",
        jitter: Duration = 0,
        paused: bool = False,
    ) -> Callable[[ArglessT], ArglessT]: ...
    @overload
    def cron(
        self,
        expression: str,
        *,
        args: Mapping[str, object],
        tz: str = "UTC",
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        misfire: Misfire = "coalesce",
        catch_up: int = ...,
        overlap: Overlap = "allow",
        jitter: Duration = 0,
        paused: bool = False,
    ) -> Callable[[TaskT], TaskT]: ...
    def cron(self, expression: str, *, tz: str = "UTC", **options: Any) -> Any:
        """Enqueue the task below whenever the wall clock of `tz` matches: `@app.cron("0 9 * * MON-FRI")`.

        Five fields, or six with the seconds first, or `@hourly` and its kin. `args` are the job's arguments by name.
        `misfire` says what becomes of times at which nobody was there to fire: one job for the newest (`coalesce`),
        none for those more than a minute late (`skip`), or one each for the newest `catch_up` of them (`catch_up`).
        `overlap="skip"` leaves a time out while a job of the schedule is still alive. With `jitter` each job is due
        up to so long after its time. Its name is the task's; a second schedule of the same task needs a `name`.
        """
        return self._declare(expression, {"zone": tz}, options)

    @overload
    def every(
        self,
        interval: Duration,
        *,
        first: Literal["now"] | None = None,
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        misfire: Misfire = "coalesce",
        catch_up: int = ...,
        overlap: Overlap = "allow",
        jitter: Duration = 0,
        paused: bool = False,
    ) -> Callable[[ArglessT], ArglessT]: ...
    @overload
    def every(
        self,
        interval: Duration,
        *,
        args: Mapping[str, object],
        first: Literal["now"] | None = None,
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        misfire: Misfire = "coalesce",
        catch_up: int = ...,
        overlap: Overlap = "allow",
        jitter: Duration = 0,
        paused: bool = False,
    ) -> Callable[[TaskT], TaskT]: ...
    def every(self, interval: Duration, *, first: Literal["now"] | None = None, **options: Any) -> Any:
        """Enqueue the task below again and again: `@app.every("10m")`. The first time is one interval after the
        schedule was first registered; with `first="now"` it also fires then. The rest is as with `cron`."""
        from ..core import cron

        try:
            expression = f"every {words(cron.interval(interval))}"
        except ValueError as error:
            raise ConfigError(f"@every: {error}") from None
        if first not in (None, "now"):
            raise ConfigError(f'@every: first must be "now" or left out, not {first!r}')
        return self._declare(expression, {}, options, at_once=first == "now")

    def _declare(
        self, expression: str, fields: dict[str, Any], options: dict[str, Any], *, at_once: bool = False
    ) -> Callable[[Any], Any]:
        args, name = options.pop("args", None), options.pop("name", None)
        own = {key: options.pop(key) for key in ("queue", "priority") if key in options}
        if unknown := options.keys() - {"misfire", "catch_up", "overlap", "jitter", "paused"}:
            raise TypeError(f"a schedule has no option {sorted(unknown)[0]!r}")

        def add(task: Any) -> Any:
            if not hasattr(task, "bind_named"):
                raise ConfigError(f"@cron and @every stand above @task, and were given {task!r}")
            try:
                if "jitter" in options:
                    options["jitter"] = seconds(options["jitter"], "jitter")
                call = task.using(**own).bind_named(args or {})
                entry = Entry(
                    names.check_name("schedule", name or task.name), task, call, expression, fields | options, at_once
                )
                plan_of(entry, NewJob(id="", task=call.task, queue="default", args=call.args))
            except (ValueError, TypeError, PayloadError) as error:
                raise ConfigError(f"schedule {name or task.name}: {error}") from None
            homes = self._homes()
            for home in homes:
                home.check_time(entry)
            for home in homes:
                home.timetable[entry.name] = entry
            return task

        return add

    def check_time(self, entry: Entry) -> None:
        """A name is taken, unless the task behind it was declared anew, as one does at a prompt."""
        other = self.timetable.get(entry.name)
        if other is None or other is entry or not self._knows(other.task):
            return
        said = f"{other.task.name} has a schedule of the name {entry.name} already"
        raise ConfigError(f"{said}: give this one a name=")

    def take_over(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.timetable[entry.name] = entry

    def _homes(self) -> list[Timetable]:
        """This one and all that include it."""
        return [self]

    def _knows(self, task: Any) -> bool:
        return True


def plan_of(entry: Entry, job: NewJob) -> Plan:
    """The plan of a declared schedule, for jobs like this one."""
    from ..core import schedule

    return schedule.plan_of(job, entry.expression, **entry.fields)
