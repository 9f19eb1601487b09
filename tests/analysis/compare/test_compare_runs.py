"""Whole comparisons of made-up jobs that differ in one thing."""

from __future__ import annotations

import pytest

from hooktrace.analysis.compare import Measures, compare_runs
from hooktrace.analysis.compare.comparison import Comparison, Part
from hooktrace.analysis.run.waits import ONE_RANK

from .jobs import as_facts, compared, measures


def part(found: Comparison, key: str) -> Part:
    return next(one for one in found.parts if one.key == key)


def test_equal_jobs_are_not_shown_to_differ() -> None:
    """Another seed is another run of the same set-up."""
    for seed in range(1, 6):
        found = compared(seed=seed)
        step = found.quantity("period")
        assert step is not None
        assert step.verdict == "not shown"
        assert "the step time is not shown to differ" in found.sentence


def test_a_slower_network_is_transfer() -> None:
    """A quarter of the bandwidth: 11.9 ms more of the last buckets' transfer, and nothing else."""
    found = compared(bytes_per_second=2.5e8)
    assert found.sentence.startswith("Between these two runs, other is 11 % (11 to 12) slower")
    assert found.sentence.endswith("ms of wire transfer.")
    assert not part(found, "compute").difference.differs
    worst = max(found.buckets, key=lambda pair: pair.exposed.difference or 0)
    assert (worst.a, worst.b) == (6, 6)
    assert worst.stage is not None
    assert worst.stage[0] == "transfer"


def test_from_which_bandwidth_on_the_second_hook_stops_paying() -> None:
    """One bucket of 8 MB: half of it, for 1 ms more in compress and decompress each."""
    sides = halved(ranks=2)
    assert compare_runs(*sides).pays_below_bytes_per_second == pytest.approx(4e6 / 2e-3, rel=0.02)
    assert compare_runs(*reversed(sides)).pays_below_bytes_per_second is None
    assert compared(bytes_per_second=2.5e8).pays_below_bytes_per_second is None
    assert compare_runs(*halved(ranks=1)).pays_below_bytes_per_second is None  # on no link


def halved(ranks: int) -> tuple[list[Measures], list[Measures]]:
    one = {"bucket_bytes": (8_000_000,), "ranks": ranks}
    return (
        [measures("base", codec_ms=0.05, **one)],
        [
            measures(
                "other", seed=1, codec_ms=1.05, wire_share=0.5, hook="fp16_compress_hook", **one
            )
        ],
    )


def test_a_late_rank_is_waiting_and_has_a_name() -> None:
    """Its own time is outside of communication."""
    found = compared(late_ms={2: 8.0})
    assert "ms of waiting for rank 2, late in other" in found.sentence
    assert "transfer" not in found.sentence
    back = compare_runs([measures("other", seed=1, late_ms={2: 8.0})], [measures("base")])
    assert "faster than other" in back.sentence
    assert "ms of waiting for rank 2, late in other" in back.sentence


def test_parts_add_up_to_the_step() -> None:
    """On both sides, and their differences."""
    found = compared(bytes_per_second=2.5e8, late_ms={1: 3.0})
    assert found.step is not None
    for field in ("a", "b", "difference"):
        parts = [getattr(one.difference, field) for one in found.parts]
        assert sum(parts) == pytest.approx(getattr(found.step, field), abs=5)


def test_errors_are_compared_where_probed() -> None:
    """Two probes each are too few for an interval; probed steps are left out, and it says so."""
    found = compare_runs([measures("base", error=0.001)], [measures("other", seed=1, error=0.01)])
    error = found.quantity("error")
    assert error is not None
    assert error.verdict == "unknown"
    assert compared().quantity("error") is None
    assert error.b == pytest.approx(0.01 * (1 + 1.5 / 8), rel=0.2)
    assert any("2 of 60 in base, 2 of 60 in other" in text for text in found.doubts)


def test_other_buckets_of_one_model_enter_totals_only() -> None:
    """A parameter of the same name and shape in both makes a pair."""
    found = compared(bucket_bytes=(4_000_000,) * 7 + (1_000_000,) * 4)
    assert found.parts == ()  # other shapes: another model
    assert [one.key for one in found.quantities] == ["period", "period_mean"]
    assert "not the same model" in found.limits[0]


def test_a_side_of_several_runs_has_runs_as_units() -> None:
    """Steps of equal runs are quiet, so the interval is of the runs' spread."""
    a = [measures(f"a{i}", seed=i) for i in range(3)]
    b = [measures(f"b{i}", seed=10 + i, bytes_per_second=5e8) for i in range(3)]
    found = compare_runs(a, b)
    assert found.by_runs
    assert found.sentence.startswith("Over 3 and 3 runs, b0 and 2 more is 3.")
    assert not any("One run a side" in text for text in found.doubts)
    assert compare_runs(a, b[:1]).by_runs


def test_runs_of_one_side_with_other_buckets_have_totals_alone() -> None:
    """A bucket's place says nothing then: the third of one run may not be in the other at all."""
    four = measures("a2", bucket_bytes=(8_000_000,) * 4)
    base, other = measures("base"), measures("other", seed=1)
    for a, b in (([base, four], [other]), ([base], [other, four])):
        found = compare_runs(a, b)
        assert found.buckets == ()
        assert [text for text in found.limits if "has other buckets than" in text]


def test_without_buckets_step_times_are_compared() -> None:
    """Of files whose limit left the detail out; and one step alone has no period."""
    sides = []
    for one in (measures("base"), measures("other", seed=1)):
        none = one.parts._replace(known=one.parts.known & False).of_known()
        sides.append([Measures(one.facts, one.series, none)])
    found = compare_runs(sides[0], sides[1])
    assert found.quantity("period") == compared().quantity("period")
    assert found.step is not None
    assert (found.step.verdict, [one.key for one in found.parts]) == ("unknown", [])
    assert {pair.stage for pair in found.buckets} == {None}
    assert "no step time of one is known" in compared(steps=1).sentence


def test_wire_is_whole_where_waits_are_unknown_in_one() -> None:
    """Rather than to compare a wait with what may have one in it."""
    other = as_facts(measures("other", seed=1), waits_unknown=ONE_RANK)
    found = compare_runs([measures("base")], [other])
    keys = [one.key for one in found.parts]
    assert "wire" in keys
    assert not {"wait", "transfer"} & set(keys)
    assert "because in other one rank waits for nobody" in found.limits[0]
    alike = compare_runs([other], [other])
    assert not any("wire is not told apart" in limit for limit in alike.limits)
