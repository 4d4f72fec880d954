from __future__ import annotations

from .conftest import Store, Treadle


def test_a_cause_is_muted_and_unmuted(treadle: Treadle, store: Store) -> None:
    store.failed()
    (group,) = treadle("jobs", "failures", "--json").objects
    cause = group["cause"]
    ran = treadle("jobs", "mute", cause, "--until", "2h", "--reason", "known")
    assert (ran.code, ran.out.strip()) == (0, f"{cause}  muted")
    line = next(each for each in treadle("audit", "--json").objects if each["act"] == "jobs.mute")
    assert (line["subject"], line["reason"]) == (cause, "known") and line["detail"].startswith("until ")
    assert treadle("jobs", "failures").out.splitlines()[1].split()[:3] == ["1", "0", "muted"]
    assert treadle("jobs", "unmute", cause, "--json").objects == [{"cause": cause, "muted": False}]
    assert "muted" not in treadle("jobs", "failures").out
    ran = treadle("jobs", "unmute", cause)
    assert ran.code != 0 and "is not muted" in ran.err


def test_what_is_no_cause(treadle: Treadle, store: Store) -> None:
    ran = treadle("jobs", "mute", "TimeoutError")
    assert ran.code == 2 and "task:exception:place" in ran.err
