"""Seeds of the simulation, and what they notice when a safeguard is switched off."""

from __future__ import annotations

import os

import pytest

from treadle.testing.simulation import campaign
from treadle.testing.simulation.ablations import ABLATIONS, HARMLESS, Ablation
from treadle.testing.simulation.campaign import REACHED, Result
from treadle.testing.simulation.mill import Bustle

SEEDS = int(os.environ.get("SIMULATION_SEEDS", "300"))

WITHIN = 500  # seeds a safeguard that is switched off must be noticed

# Where a campaign found each of them first, to look there first. The search is `make ablations`: a change of what pods
# do shifts what a seed is about, and then it takes longer here.
FOUND_AT = {
    "fence on finish": 42,
    "fence on beat": 18,
    "charge at claim": 0,
    "state looked at again in the claim": 0,
    "repeatable enqueue": 15,
    "unique index": 0,
    "repeatable finish": 4,
    "lease looked at again in the rescue": 87,
    "release uncharged": 1,
    "recovery of a claim whose answer was lost": 15,
    "poison cap": 0,
    "beat during the drain": 1,
    "the storage's clock": 1,
    "one fire for each time": 0,
    "cap of a rate": 3,
    "the kept request takes over": 0,
}


def test_a_campaign_breaks_no_promise_and_meets_every_fault() -> None:
    result = campaign(0, SEEDS)
    assert [(report.seed, report.broken[0]) for report in result.failed] == []
    assert result.unlike == []
    assert result.missing() == {}


def test_a_campaign_in_which_a_fault_never_fired_is_red() -> None:
    result = Result(seeds=1000)
    result.counts.update(REACHED)
    assert result.passed
    result.counts["lost_answer_claim"] = 0
    assert result.missing() == {"lost_answer_claim": 0}
    assert not result.passed


@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda each: each.name)
def test_a_safeguard_that_is_switched_off_is_noticed(ablation: Ablation) -> None:
    for seed in (FOUND_AT[ablation.name], *range(WITHIN)):
        if ablation.run(seed):
            return
    pytest.fail(f"{ablation.name}: not noticed within {WITHIN} seeds")


def test_what_is_kept_is_neither_lost_nor_doubled_whatever_happens() -> None:
    reports = [Bustle(seed).run() for seed in range(max(10, SEEDS // 25))]
    assert [(report.seed, report.broken[0]) for report in reports if report.broken] == []
    assert sum(report.counts["kept"] for report in reports) > 5 * len(reports)


def test_two_leaders_are_harmless() -> None:
    assert [HARMLESS.run(seed) for seed in range(10)] == [[]] * 10
