from __future__ import annotations

from .conftest import Store, Treadle

CAUSE = "shop.charge:TimeoutError:shop.bank:connect"


def test_a_cause_is_muted_and_unmuted(treadle: Treadle, store: Store) -> None:
    ran = treadle("jobs", "mute", CAUSE, "--until", "2h", "--reason", "known")
    assert (ran.code, ran.out.strip()) == (0, f"{CAUSE}  muted")
    line = next(each for each in treadle("audit", "--json").objects if each["act"] == "jobs.mute")
    assert (line["subject"], line["reason"]) == (CAUSE, "known") and line["detail"].startswith("until ")
    assert treadle("jobs", "unmute", CAUSE, "--json").objects == [{"cause": CAUSE, "muted": False}]
    ran = treadle("jobs", "unmute", CAUSE)
    assert ran.code != 0 and "is not muted" in ran.err


def test_what_is_no_cause(treadle: Treadle, store: Store) -> None:
    ran = treadle("jobs", "mute", "TimeoutError")
    assert ran.code == 2 and "task:exception:place" in ran.err
