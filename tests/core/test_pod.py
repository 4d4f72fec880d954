"""What a lease allows a pod to do."""

from __future__ import annotations

import pytest

from treadle.core.pod import FENCE_MARGIN, Held, Pod, PodCard, PodStats, Wish, may_claim

CARD = PodCard(id="pod", label="web-1", host="box", pid=7, version="1", queues={"mail": 3}, tasks=("send",), lease=30.0)


@pytest.mark.parametrize(
    ("lease_left", "lost", "live"),
    [(30.0, False, True), (0.001, False, True), (0.0, False, False), (-5.0, False, False)],
)
def test_a_pod_lives_while_its_lease_does(lease_left: float, lost: bool, live: bool) -> None:
    assert Pod(card=CARD, started_at=0.0, beat_at=0.0, lease_left=lease_left, lost=lost).live is live


def test_a_lost_pod_is_not_live_whatever_its_lease_says() -> None:
    assert not Pod(card=CARD, started_at=0.0, beat_at=0.0, lease_left=30.0, lost=True).live


@pytest.mark.parametrize(
    ("lease_left", "lost", "wish", "says_quiet", "state", "is_quiet"),
    [
        (30.0, False, "serve", None, "live", False),
        (30.0, False, "serve", False, "live", False),
        (30.0, False, "serve", True, "quiet", True),
        (30.0, False, "quiet", False, "quiet", True),
        (30.0, False, "stop", False, "stopping", True),
        (0.0, False, "quiet", False, "lapsed", True),
        (30.0, True, "serve", False, "lost", False),
    ],
)
def test_a_pods_state_in_one_word(
    lease_left: float, lost: bool, wish: Wish, says_quiet: bool | None, state: str, is_quiet: bool
) -> None:
    stats = None if says_quiet is None else PodStats(quiet=says_quiet)
    pod = Pod(card=CARD, started_at=0.0, beat_at=0.0, lease_left=lease_left, lost=lost, wish=wish, stats=stats)
    assert (pod.state, pod.is_quiet) == (state, is_quiet)


def test_a_held_claim_is_wanted_unless_said_otherwise() -> None:
    assert not Held("job", "token").cancel_wanted


@pytest.mark.parametrize(
    ("since_beat", "lease", "may"),
    [
        (0.0, 30.0, True),
        (24.999, 30.0, True),
        (25.0, 30.0, False),
        (31.0, 30.0, False),
        (99.0, 120.0, True),
        (114.999, 120.0, True),
        (115.0, 120.0, False),
        (4.999, 6.0, True),  # a short lease keeps a sixth
        (5.0, 6.0, False),
        (0.0, 0.0, False),
    ],
)
def test_a_pod_fences_itself_before_its_lease_ends(since_beat: float, lease: float, may: bool) -> None:
    assert may_claim(since_beat, lease) is may


def test_the_margin_of_the_fence() -> None:
    assert FENCE_MARGIN == 5.0
