"""`app.schedules`: what an operator reads and does about schedules.

Every act is decided in `core.schedule` and written by compare-and-set. Without a `version`, it is decided anew when
somebody was faster; with one, that is a `Conflict`. What an operator has edited stays so through every deploy, until it
is reset to code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

from msgspec.structs import replace

from ..client.client import Client, new_id
from ..context.context import Call, EnqueueOutcome, Handle, Options, amend
from ..core import cron, firing, names, payload
from ..core import schedule as scheduling
from ..core.audit import AuditLine
from ..core.duration import Duration, seconds
from ..core.errors import Conflict, ScheduleNotFound
from ..core.schedule import Edit, Misfire, Overlap, Schedule
from ..core.schedule_view import FireView, ScheduleView, fire_view, schedule_view
from ..tasks.task import Task

MOST_ROUNDS: Final = 10
MOST_FIRES: Final = 1000


class Schedules:
    """`app.schedules`: what is enqueued by the clock. An edit or a removal is kept through deploys.

    >>> app.schedules.add_sync("nightly", "0 2 * * *", "send", args={"user": 1}, tz="Europe/Berlin").zone
    'Europe/Berlin'
    """

    def __init__(self, client: Client, task: Callable[[str], Task[..., Any] | None]) -> None:
        """`task` finds a task by its name, if its code is here."""
        self._client = client
        self._task = task

    # Read ------------------------------------------------------------------------------------------------------------

    async def list(self, *, removed: bool = False) -> Sequence[ScheduleView]:
        """All schedules by name; with `removed`, also the tombstones."""
        now, found = await self._client.ask(lambda storage: storage.schedules())
        live = await self._live()
        return [schedule_view(each, now, each.name in live) for each in found if removed or not each.removed]

    async def get(self, name: str) -> ScheduleView:
        """One schedule, a removed one too; ScheduleNotFound."""
        now, schedule = await self._find(name)
        return schedule_view(schedule, now, name in await self._live())

    async def next(self, name: str, count: int = 10) -> Sequence[datetime]:
        """When it fires next, as if it were not paused; nothing for one that was removed."""
        if not 1 <= count <= MOST_FIRES:
            raise ValueError(f"count must be from 1 to {MOST_FIRES}")
        now, schedule = await self._find(name)
        if schedule.removed:
            return []
        times = scheduling.next_fires(schedule.plan, schedule.anchor, max(now, schedule.progress.cursor), count)
        return [datetime.fromtimestamp(at, UTC) for at in times]

    async def fires(self, name: str, limit: int = 30) -> Sequence[FireView]:
        """Its last fires, newest first, as far as they are kept."""
        if not 1 <= limit <= MOST_FIRES:
            raise ValueError(f"limit must be from 1 to {MOST_FIRES}")
        await self._find(name)
        return [fire_view(each) for each in await self._client.ask(lambda storage: storage.fires(name, limit))]

    # Change ----------------------------------------------------------------------------------------------------------

    async def add(
        self,
        name: str,
        expression: str,
        task: str,
        args: Mapping[str, object] | None = None,
        *,
        tz: str = "UTC",
        queue: str | None = None,
        priority: int | None = None,
        misfire: Misfire = "coalesce",
        catch_up: int = scheduling.MOST_CATCH_UP,
        overlap: Overlap = "allow",
        jitter: Duration = 0,
        paused: bool = False,
        first: Literal["now"] | None = None,
        by: str | None = None,
    ) -> ScheduleView:
        """Make a schedule, also in the place of one that was removed. `expression` is a cron line or `every 10m`.
        Conflict if the name is taken."""
        plan = self._plan(
            name,
            expression,
            first,
            self._call(task, args or {}, {"queue": queue, "priority": priority}),
            zone=tz,
            misfire=misfire,
            catch_up=catch_up,
            overlap=overlap,
            jitter=seconds(jitter, "jitter"),
            paused=paused,
        )

        def decide(now: float, existing: Schedule | None) -> Edit:
            if existing is not None and not existing.removed:
                raise Conflict(f"there is a schedule {name} already: put or edit it, or choose another name")
            return scheduling.add(name, plan, now, by=by, at_once=first == "now", over=existing)

        line = AuditLine(id=new_id(), act="schedules.add", subject=name, by=by, detail=f"{expression} {task}")
        return await self._write(line, decide, None)

    async def put(
        self,
        name: str,
        expression: str,
        task: str,
        args: Mapping[str, object] | None = None,
        *,
        tz: str = "UTC",
        queue: str | None = None,
        priority: int | None = None,
        misfire: Misfire = "coalesce",
        catch_up: int = scheduling.MOST_CATCH_UP,
        overlap: Overlap = "allow",
        jitter: Duration = 0,
        paused: bool | None = None,
        first: Literal["now"] | None = None,
        by: str | None = None,
    ) -> ScheduleView:
        """Make a schedule, or change the one of this name to be so in all its fields: a program may put its schedules
        at each start. One that is so already stays untouched; with another expression or zone it starts anew. Whether
        it is paused stays an operator's, unless `paused` is given; `first` counts when it is made."""
        plan = self._plan(
            name,
            expression,
            first,
            self._call(task, args or {}, {"queue": queue, "priority": priority}),
            zone=tz,
            misfire=misfire,
            catch_up=catch_up,
            overlap=overlap,
            jitter=seconds(jitter, "jitter"),
            paused=bool(paused),
        )

        def decide(now: float, existing: Schedule | None) -> Edit | None:
            is_there = existing is not None and not existing.removed
            wanted = replace(plan, paused=existing.plan.paused) if existing and is_there and paused is None else plan
            return scheduling.put(existing, name, wanted, now, by=by, at_once=first == "now")

        line = AuditLine(id=new_id(), act="schedules.put", subject=name, by=by, detail=f"{expression} {task}")
        return await self._write(line, decide, None)

    def _plan(
        self, name: str, expression: str, first: Literal["now"] | None, call: Call[Any], **fields: Any
    ) -> scheduling.Plan:
        names.check_name("schedule", name)
        if first not in (None, "now"):
            raise ValueError(f'first must be "now" or left out, not {first!r}')
        if first == "now" and not isinstance(cron.parse(expression), cron.Interval):
            raise ValueError('first="now" is for intervals; to enqueue one job at once, fire the schedule')
        return scheduling.plan_of(self._client.prepare(call), expression, **fields)

    async def edit(
        self,
        name: str,
        *,
        expression: str | None = None,
        tz: str | None = None,
        queue: str | None = None,
        args: Mapping[str, object] | None = None,
        priority: int | None = None,
        misfire: Misfire | None = None,
        catch_up: int | None = None,
        overlap: Overlap | None = None,
        jitter: Duration | None = None,
        by: str | None = None,
        version: int | None = None,
    ) -> ScheduleView:
        """Change what is given. With another expression or zone it starts anew: nothing from before fires."""
        given = {
            "expression": expression,
            "zone": tz,
            "queue": queue,
            "priority": priority,
            "misfire": misfire,
            "catch_up": catch_up,
            "overlap": overlap,
            "jitter": None if jitter is None else seconds(jitter, "jitter"),
        }
        fields = {field: value for field, value in given.items() if value is not None}
        if not fields and args is None:
            raise ValueError("nothing to change: give at least one field")

        def decide(now: float, schedule: Schedule) -> Edit:
            if args is not None:
                fields["args"] = self._call(schedule.plan.task, args, {}).args
            return scheduling.edit(schedule, fields, now, by=by)

        # The names alone: arguments may be nobody else's business.
        changed = ", ".join([*fields, *(["args"] if args is not None else [])])
        return await self._change("set", name, by, decide, version, detail=changed)

    async def pause(
        self, name: str, *, reason: str | None = None, by: str | None = None, version: int | None = None
    ) -> ScheduleView:
        """Fire nothing until it is resumed; by hand it still can be."""
        if reason is not None:
            names.check_reason(reason)
        return await self._change(
            "pause",
            name,
            by,
            lambda now, schedule: scheduling.pause(schedule, now, by=by, reason=reason),
            version,
            reason=reason,
        )

    async def resume(self, name: str, *, by: str | None = None, version: int | None = None) -> ScheduleView:
        """Fire again from now on. What would have fired meanwhile was not missed."""
        return await self._change(
            "resume", name, by, lambda now, schedule: scheduling.resume(schedule, now, by=by), version
        )

    async def remove(self, name: str, *, by: str | None = None, version: int | None = None) -> ScheduleView:
        """Fire it no more. Its tombstone stays, so that the next deploy does not bring it back; `reset` does."""
        return await self._change(
            "remove", name, by, lambda now, schedule: scheduling.remove(schedule, now, by=by), version
        )

    async def reset(self, name: str, *, by: str | None = None, version: int | None = None) -> ScheduleView:
        """As its code declares it, whatever operators did, removal too."""
        return await self._change(
            "reset", name, by, lambda now, schedule: scheduling.reset(schedule, now), version, though_removed=True
        )

    async def fire(self, name: str, *, by: str | None = None) -> Handle[Any]:
        """Enqueue its job at once, whether it is paused or its last job still runs; its clock goes on as before. With
        `by`, the audit names who did so."""
        job_id = new_id()
        for _ in range(MOST_ROUNDS):
            now, schedule = await self._find(name)
            self._must_be_there(schedule)
            if not schedule.readable:
                raise Conflict(f"schedule {name} cannot be fired: {schedule.progress.last_error}")
            wish = firing.fire_now(schedule, now, job_id)
            fired = await self._client.ask(lambda storage, wish=wish: storage.fire(wish))  # type: ignore[misc]
            if fired.outcome != "stale":
                (job,) = fired.jobs
                outcome: EnqueueOutcome = "inserted" if job == job_id else "duplicate"
                await self._client.note("schedules.fire", name, by, f"job {job}, {outcome}")
                return Handle(job, outcome, self._client)
        raise Conflict(f"schedule {name} changes faster than it can be fired; try again")

    async def _change(
        self,
        act: str,
        name: str,
        by: str | None,
        decide: Callable[[float, Schedule], Edit],
        version: int | None,
        *,
        detail: str = "",
        reason: str | None = None,
        though_removed: bool = False,
    ) -> ScheduleView:
        def checked(now: float, existing: Schedule | None) -> Edit:
            assert existing is not None
            if not though_removed:
                self._must_be_there(existing)
            return decide(now, existing)

        await self._find(name)
        line = AuditLine(id=new_id(), act=f"schedules.{act}", subject=name, by=by, reason=reason, detail=detail)
        return await self._write(line, checked, version)

    async def _write(
        self, line: AuditLine, decide: Callable[[float, Schedule | None], Edit | None], version: int | None
    ) -> ScheduleView:
        name = line.subject
        for _ in range(MOST_ROUNDS):
            now, found = await self._client.ask(lambda storage: storage.schedules())
            existing = next((each for each in found if each.name == name), None)
            if version is not None and existing is not None and existing.version != version:
                raise Conflict(f"schedule {name} has changed meanwhile (version {existing.version}): look again")
            edit = decide(now, existing)
            if edit is None:
                return await self.get(name)
            saved = await self._client.ask(
                lambda storage, edit=edit: storage.save_schedule(  # type: ignore[misc]
                    edit.schedule, edit.expected, cursor=edit.cursor, line=line
                )
            )
            if saved:
                return await self.get(name)
        raise Conflict(f"schedule {name} changes faster than it can be changed; try again")

    async def _find(self, name: str) -> tuple[float, Schedule]:
        now, found = await self._client.ask(lambda storage: storage.schedules())
        for schedule in found:
            if schedule.name == name:
                return now, schedule
        raise _not_found(name, [each.name for each in found])

    async def _live(self) -> set[str]:
        """The schedules that the code of live pods declares."""
        pods = await self._client.ask(lambda storage: storage.pods())
        return {name for pod in pods if pod.live for name in pod.card.schedules}

    def _call(self, name: str, args: Mapping[str, object], options: Mapping[str, Any]) -> Call[Any]:
        known = self._task(name)
        if known is not None:
            return known.using(**options).bind_named(args)
        # Its code is elsewhere: no signature to check, and the pod that has it decides about attempts and timeout.
        return Call(names.check_name("task", name), payload.encode_arguments(args), amend(Options(), **options))

    @staticmethod
    def _must_be_there(schedule: Schedule) -> None:
        if schedule.removed:
            raise Conflict(f"schedule {schedule.name} was removed: reset it to its code, or add it anew")

    # Sync twins ------------------------------------------------------------------------------------------------------

    def list_sync(self, *, removed: bool = False) -> Sequence[ScheduleView]:
        return self._client.run_sync(self.list(removed=removed))

    def get_sync(self, name: str) -> ScheduleView:
        return self._client.run_sync(self.get(name))

    def next_sync(self, name: str, count: int = 10) -> Sequence[datetime]:
        return self._client.run_sync(self.next(name, count))

    def fires_sync(self, name: str, limit: int = 30) -> Sequence[FireView]:
        return self._client.run_sync(self.fires(name, limit))

    def add_sync(
        self,
        name: str,
        expression: str,
        task: str,
        args: Mapping[str, object] | None = None,
        *,
        tz: str = "UTC",
        queue: str | None = None,
        priority: int | None = None,
        misfire: Misfire = "coalesce",
        catch_up: int = scheduling.MOST_CATCH_UP,
        overlap: Overlap = "allow",
        jitter: Duration = 0,
        paused: bool = False,
        first: Literal["now"] | None = None,
        by: str | None = None,
    ) -> ScheduleView:
        return self._client.run_sync(
            self.add(
                name,
                expression,
                task,
                args,
                tz=tz,
                queue=queue,
                priority=priority,
                misfire=misfire,
                catch_up=catch_up,
                overlap=overlap,
                jitter=jitter,
                paused=paused,
                first=first,
                by=by,
            )
        )

    def put_sync(
        self,
        name: str,
        expression: str,
        task: str,
        args: Mapping[str, object] | None = None,
        *,
        tz: str = "UTC",
        queue: str | None = None,
        priority: int | None = None,
        misfire: Misfire = "coalesce",
        catch_up: int = scheduling.MOST_CATCH_UP,
        overlap: Overlap = "allow",
        jitter: Duration = 0,
        paused: bool | None = None,
        first: Literal["now"] | None = None,
        by: str | None = None,
    ) -> ScheduleView:
        return self._client.run_sync(
            self.put(
                name,
                expression,
                task,
                args,
                tz=tz,
                queue=queue,
                priority=priority,
                misfire=misfire,
                catch_up=catch_up,
                overlap=overlap,
                jitter=jitter,
                paused=paused,
                first=first,
                by=by,
            )
        )

    def edit_sync(
        self,
        name: str,
        *,
        expression: str | None = None,
        tz: str | None = None,
        queue: str | None = None,
        args: Mapping[str, object] | None = None,
        priority: int | None = None,
        misfire: Misfire | None = None,
        catch_up: int | None = None,
        overlap: Overlap | None = None,
        jitter: Duration | None = None,
        by: str | None = None,
        version: int | None = None,
    ) -> ScheduleView:
        return self._client.run_sync(
            self.edit(
                name,
                expression=expression,
                tz=tz,
                queue=queue,
                args=args,
                priority=priority,
                misfire=misfire,
                catch_up=catch_up,
                overlap=overlap,
                jitter=jitter,
                by=by,
                version=version,
            )
        )

    def pause_sync(
        self, name: str, *, reason: str | None = None, by: str | None = None, version: int | None = None
    ) -> ScheduleView:
        return self._client.run_sync(self.pause(name, reason=reason, by=by, version=version))

    def resume_sync(self, name: str, *, by: str | None = None, version: int | None = None) -> ScheduleView:
        return self._client.run_sync(self.resume(name, by=by, version=version))

    def remove_sync(self, name: str, *, by: str | None = None, version: int | None = None) -> ScheduleView:
        return self._client.run_sync(self.remove(name, by=by, version=version))

    def reset_sync(self, name: str, *, by: str | None = None, version: int | None = None) -> ScheduleView:
        return self._client.run_sync(self.reset(name, by=by, version=version))

    def fire_sync(self, name: str, *, by: str | None = None) -> Handle[Any]:
        return self._client.run_sync(self.fire(name, by=by))


def _not_found(name: str, known: Sequence[str]) -> ScheduleNotFound:
    near = names.suggest(name, known)
    return ScheduleNotFound(f"there is no schedule {name}" + (f'; did you mean "{near}"?' if near else ""))
