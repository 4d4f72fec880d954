"""A wait and its answer, small enough to be searched to their end; see `protocols`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .explorer import Model, Step
from .protocols import put

CLAIMS = 2


class AnswerState(NamedTuple):
    job: str = "ready"
    claim: int = -1  # the current one; each asks by a token of its own
    tokens: tuple[str, ...] = ("", "")  # open, given
    winners: tuple[int, ...] = (0, 0)
    marked: bool = False  # the next run sees an answer
    seen: int | None = None  # the wait that a rescuer has found over
    beaten: bool = False  # and that was kept alive since
    fault: str | None = None


@dataclass
class Answers(Model):
    """One job, whose worker may die while it runs; two callers with every token; a rescuer that looks, and writes
    later."""

    meets: bool = True  # a wait looks for its answer in the write that begins it
    claims: bool = True  # an answer is compared with the current claim
    once: bool = True  # an answer that was given is given
    looks_again: bool = True  # the end of a wait is compared with the limit when it is written
    start = AnswerState()

    def steps(self, state: AnswerState) -> Iterator[Step]:
        claim = state.claim
        if state.job == "ready" and claim + 1 < CLAIMS + state.marked:
            # An answer returns the charge; here, the claim keeps its number.
            yield "claim", state._replace(job="running", claim=claim if state.marked else claim + 1)
        if state.job == "running":
            yield from self._runs(state)
        for token, word in enumerate(state.tokens):
            if word == "open" or (word and not self.once):
                yield f"answer {token}", self._answered(state, token)
        if state.job == "waiting":
            yield "look", state._replace(seen=claim, beaten=False)
            yield "beat", state._replace(beaten=True)
        if state.seen is not None:
            yield "end the wait", self._ended(state)

    def _runs(self, state: AnswerState) -> Iterator[Step]:
        if state.marked:
            yield "succeed", state._replace(job="succeeded")
            return
        token = state.tokens[state.claim]
        yield "fault: crash", state._replace(job="ready")
        if not token:
            yield "ask", state._replace(tokens=put(state.tokens, state.claim, "open"))
        elif token == "given" and self.meets:
            yield "wait, answered", state._replace(job="ready", marked=True)
        else:
            yield "wait", state._replace(job="waiting")

    def _answered(self, state: AnswerState, token: int) -> AnswerState:
        is_current = token == state.claim and state.job in ("running", "waiting")
        if self.claims and not is_current:
            return state  # stale
        given = state._replace(
            tokens=put(state.tokens, token, "given"), winners=put(state.winners, token, state.winners[token] + 1)
        )
        if state.job != "waiting":
            return given
        return given._replace(job="ready", marked=True, fault=None if is_current else "it got another attempt's answer")

    def _ended(self, state: AnswerState) -> AnswerState:
        if state.job != "waiting" or state.seen != state.claim:
            return state._replace(seen=None)  # refused
        if state.beaten and self.looks_again:
            return state._replace(seen=None)
        fault = "a wait was ended that somebody had kept alive" if state.beaten else None
        return state._replace(job="ready", seen=None, fault=fault)

    def wrong(self, state: AnswerState) -> str | None:
        if max(state.winners) > 1:
            return "two callers were told that they won"
        if state.job == "waiting" and state.tokens[state.claim] == "given":
            return "it waits for an answer that is there"
        return state.fault

    def over(self, state: AnswerState) -> bool:
        return state.job == "succeeded" or (state.job == "ready" and state.claim + 1 == CLAIMS and not state.marked)
