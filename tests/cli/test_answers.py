"""`treadle answers`."""

from __future__ import annotations

import asyncio

from treadle import App, Context, Wait
from treadle.config import Timing

from .conftest import Store, Treadle

QUICK = Timing(poll=0.05, start_jitter=0.0)


def waiting(store: Store) -> str:
    """A job that waits in the store; the token of its answer."""
    tokens: list[str] = []

    async def work(app: App) -> str:
        @app.task(name="pay")
        async def pay(ctx: Context) -> None:
            tokens.append(await ctx.answer_token("1h"))
            raise Wait(tokens[-1])

        handle = await pay.enqueue()
        async with app.worker({"default": 1}, timing=QUICK):
            while (await handle.status()).state != "waiting":
                await asyncio.sleep(0.01)
        return tokens[0]

    return store.run(work)


def test_a_job_is_answered_once(treadle: Treadle, store: Store) -> None:
    token = waiting(store)
    assert treadle("answers", "beat", token).lines[0].startswith("waited for until 20")
    assert treadle("answers", "beat", token, "--json").object["until"].endswith("Z")
    assert "waits" in treadle("jobs", "find", "state:waiting", "--json").object
    assert treadle("answers", "give", token, '{"paid": true}', "--json").object == {"outcome": "won", "kind": "result"}
    assert treadle("answers", "give", token, '{"paid":true}').lines == ["answered before, with the same words"]
    refused = treadle("answers", "fail", token, "declined")
    assert (refused.code, refused.lines) == (1, [])
    assert "has been given another answer" in refused.err
    assert treadle("answers", "beat", token).code == 1
    assert treadle("jobs", "find", "state:ready", "--json").object["attempt"] == 0
    assert token not in refused.err


def test_an_error_and_again(treadle: Treadle, store: Store) -> None:
    assert treadle("answers", "fail", waiting(store), "card declined").lines == ["answered"]
    assert treadle("answers", "again", waiting(store), "10m", "--json").object["kind"] == "again"
    assert treadle("jobs", "find", "state:scheduled", "--json").object["waits"] is None


def test_the_token_may_come_by_stdin(treadle: Treadle, store: Store) -> None:
    token = waiting(store)
    assert treadle("answers", "give", "-", answer=f"{token}\n").lines == ["answered"]
    assert treadle("answers", "give", "-", answer="").code == 2


def test_what_is_wrong_is_said_in_one_line(treadle: Treadle, store: Store) -> None:
    store.enqueue()
    for line, code, says in (
        (["give", "made up"], 3, "there is no such token"),
        (["beat", "made up"], 3, "there is no such token"),
        (["give", "made up", "yes"], 2, "RESULT is not JSON"),
        (["again", "made up", "soon"], 2, "AFTER"),
    ):
        ran = treadle("answers", *line)
        assert (ran.code, says in ran.err) == (code, True), (line, ran.err)


def test_an_operator_answers_by_the_id_of_the_job(treadle: Treadle, store: Store) -> None:
    waiting(store)
    id = treadle("jobs", "find", "state:waiting", "--json").object["id"]
    assert treadle("jobs", "answer", id, "{").code == 2
    assert treadle("jobs", "answer", id, "1", "--fail", "no").code == 2
    assert treadle("jobs", "answer", id, '{"paid": true}', "--by", "ann").lines == ["answered"]
    late = treadle("jobs", "answer", id, "--fail", "card declined")
    assert late.code == 1
    assert "it does not wait for an answer" in late.err
    waiting(store)
    id = treadle("jobs", "find", "state:waiting", "--json").objects[0]["id"]
    assert treadle("jobs", "answer", id, "--fail", "card declined", "--json").object["kind"] == "error"
    assert treadle("jobs", "answer", "019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11").code == 3
