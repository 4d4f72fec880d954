from __future__ import annotations

import pytest

from treadle.core.mute import LONGEST_CAUSE, Mute, check_cause, holds


def test_a_mute_lasts_until_its_end() -> None:
    assert holds(Mute(cause="a:b:c"), 1e12)
    assert holds(Mute(cause="a:b:c", until=10.0), 9.0)
    assert not holds(Mute(cause="a:b:c", until=10.0), 10.0)


@pytest.mark.parametrize("cause", ["", "task", "task:error", "task:error:\x00", "a:b:" + "c" * LONGEST_CAUSE])
def test_what_can_be_no_cause(cause: str) -> None:
    with pytest.raises(ValueError, match="a cause"):
        check_cause(cause)


def test_a_cause_may_have_more_colons_and_an_empty_place() -> None:
    assert check_cause("shop:TimeoutError:") == "shop:TimeoutError:"
    assert check_cause("shop:TimeoutError:shop.mail:send") == "shop:TimeoutError:shop.mail:send"
