"""Numbers of large depths are remembered for a while; small ones never."""

from __future__ import annotations

from treadle.storages.shared.depths import FRESH, LARGE, OLDEST, Depths


def test_a_small_depth_is_counted_every_time() -> None:
    depths = Depths[str]()
    depths.keep("few", LARGE - 1, 0, now=0.0)
    assert depths.split(["few"], now=0.0) == (["few"], {})


def test_a_large_one_is_known_until_it_is_no_longer_fresh() -> None:
    depths = Depths[str]()
    depths.keep("many", LARGE, 5, now=0.0)
    assert depths.split(["many", "new"], now=FRESH / 2) == (["new"], {"many": (LARGE, 5)})
    assert depths.split(["many"], now=FRESH) == (["many"], {})


def test_only_so_many_are_counted_anew_at_once_and_the_oldest_first() -> None:
    depths = Depths[str](at_once=10_000)
    for number, name in enumerate("abc"):
        depths.keep(name, 10_000, 0, now=float(number) / 10)
    assert depths.split(["c", "b", "a"], now=3.0) == (["a"], {"b": (10_000, 0), "c": (10_000, 0)})
    depths.keep("a", 10_001, 0, now=3.0)
    assert depths.split(["c", "b", "a"], now=3.5)[0] == ["b"]


def test_nothing_is_told_that_is_older_than_the_oldest() -> None:
    depths = Depths[str](at_once=1)
    for name in "abc":
        depths.keep(name, 10_000, 0, now=0.0)
    assert depths.split(["a", "b", "c"], now=OLDEST) == (["a", "b", "c"], {})


def test_what_has_become_small_is_forgotten() -> None:
    depths = Depths[str]()
    depths.keep("a", LARGE, 0, now=0.0)
    depths.keep("a", 1, 0, now=1.0)
    assert depths.split(["a"], now=1.0) == (["a"], {})
