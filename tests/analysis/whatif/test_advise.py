"""What is advised, and above all what is not."""

from __future__ import annotations

import pytest

from hooktrace.analysis.whatif.advise import CAPS_MB, MOST, advise, space
from hooktrace.analysis.whatif.choice import Choice, Prediction

from .answers import answer, predicted

CHANNELS = "quantize-per-channel-512"


def advised(*predictions: Prediction) -> list[tuple[str | None, float | None]]:
    """Return hook and limit of what is advised, in order."""
    lines = advise(answer(*predictions)).lines
    return [(one.prediction.choice.hook, one.prediction.choice.bucket_cap_mb) for one in lines]


def test_time_against_error_the_fastest_first() -> None:
    """What is faster and loses more comes first, what loses nothing last."""
    found = advised(
        predicted(360.0, None, 1.0),
        predicted(110.0, "powersgd-rank4", error=0.6),
        predicted(210.0, "fp16", error=3e-4),
        predicted(158.0, CHANNELS, error=0.01),
    )
    names = ["powersgd-rank4", CHANNELS, "fp16", None]
    assert found == [*((name, None) for name in names[:3]), (None, 1.0)]
    line = advise(answer(predicted(210.0, "fp16", error=3e-4))).lines[0]
    assert (line.gain_ms, line.share) == (190.0, 0.475)
    assert line.low_ms == pytest.approx(190.0 * 0.9525)  # of pairs: narrower than the two intervals


@pytest.mark.parametrize(
    "nothing",
    [
        predicted(389.0, "fp16", error=3e-4),  # below 3 %
        predicted(370.0, "fp16", error=3e-4, own_ms=60.0),  # within what it may be off by
        predicted(410.0, "fp16", error=3e-4),  # slower
        predicted(60.0, "noop", error=1.0),  # no average of all ranks
    ],
)
def test_what_is_not_worth_it_is_left(nothing: Prediction) -> None:
    """As it is is the answer."""
    assert advised(nothing) == []


def test_without_draws_the_intervals_count_in_full() -> None:
    """Two predictions that may be wrong in opposite ways gain nothing for certain."""
    one, now = predicted(385.0, "fp16", error=3e-4), answer()
    bare = Prediction(*(getattr(one, n) for n in one.__dataclass_fields__ if n != "draws_ms"))
    assert advised(one) == [("fp16", None)]
    assert not advise(answer(bare)).lines
    assert advise(answer(bare)).best is not None
    assert advise(now).best is None


def test_nothing_lossy_for_a_small_gain_over_what_loses_less() -> None:
    """Neither over what loses nothing, nor over what loses less."""
    lossless = predicted(300.0, None, 5.0)
    assert advised(lossless, predicted(295.0, "fp16", error=3e-4)) == [(None, 5.0)]
    assert advised(
        predicted(200.0, "fp16", error=3e-4), predicted(198.0, CHANNELS, error=0.01)
    ) == [("fp16", None)]


def test_among_what_is_worth_it_the_expected_step_decides() -> None:
    """Though the two may change places: both are far better than what is."""
    unsure = predicted(120.0, CHANNELS, error=0.01, own_ms=30.0)
    sure = predicted(140.0, "fp16", error=3e-4)
    assert advised(sure, unsure) == [(CHANNELS, None), ("fp16", None)]
    smaller = predicted(120.0, "fp16", 5.0, error=3e-4, own_ms=30.0)
    assert advised(sure, smaller) == [("fp16", 5.0)]


def test_one_that_is_as_good_as_the_first_stands_beside_it() -> None:
    """Another limit, say; none that is slower by 3 %, loses more or is a change more."""
    first, other = predicted(200.0, None, 1.0), predicted(204.0, None, 5.0)
    assert advised(first, other, predicted(205.0, None, 10.0)) == [(None, 1.0), (None, 5.0)]
    assert advised(first, predicted(208.0, None, 5.0)) == [(None, 1.0)]
    assert advised(first, predicted(201.0, "fp16", 5.0, error=3e-4)) == [(None, 1.0)]
    lossy = predicted(150.0, "fp16", error=3e-4)
    assert advised(first, lossy, predicted(152.0, "fp16", 1.0, error=3e-4)) == [
        ("fp16", None),
        (None, 1.0),
    ]
    slower = predicted(170.0, "bf16", error=1e-4)
    smaller = [predicted(ms, "fp16", cap, error=3e-4) for ms, cap in ((150.0, 1.0), (152.0, 5.0))]
    assert advised(*smaller, slower) == [("fp16", 1.0), ("fp16", 5.0), ("bf16", None)]


def test_what_loses_more_and_is_slower_is_left_out() -> None:
    """So time against error is all that is left."""
    found = advised(
        predicted(200.0, "fp16", error=3e-4),
        predicted(220.0, CHANNELS, error=0.01),
        predicted(210.0, "powersgd-rank4", error=0.3),
    )
    assert found == [("fp16", None)]


def test_what_loses_nobody_knows_how_much_is_not_advised() -> None:
    """However fast it is; nor is it said that compression does not help."""
    only = advise(answer(predicted(110.0, "powersgd-rank4", error=None)))
    assert only.lines == ()
    assert not only.is_compression_no_help
    lossless = predicted(300.0, None, 5.0)
    assert advised(lossless, predicted(110.0, "fp16", error=None)) == [(None, 5.0)]


def test_one_line_a_hook_with_the_runs_own_buckets_unless_others_are_faster() -> None:
    """Two changes are not advised for the gain of one."""
    as_it_is, other = (
        predicted(200.0, "fp16", error=3e-4),
        predicted(197.0, "fp16", 5.0, error=3e-4),
    )
    assert advised(as_it_is, other) == [("fp16", None)]
    assert advised(as_it_is, predicted(150.0, "fp16", 5.0, error=3e-4)) == [("fp16", 5.0)]


def test_five_lines_at_most() -> None:
    """Of many hooks, each faster and worse than the one before."""
    many = [predicted(300.0 - 30 * i, f"h{i}", error=0.01 * (i + 1)) for i in range(7)]
    assert len(advised(*many)) == MOST
    assert advised(*many)[0] == ("h6", None)


def test_the_space_is_every_hook_by_every_limit_but_what_is() -> None:
    """Also limits for the run's own hook; its own limit once."""
    found = space(["allreduce", "fp16"], "allreduce", 25.0)
    assert len(found) == len(set(found)) == 2 * len(CAPS_MB) - 1
    assert Choice() not in found
    assert Choice("fp16") in found
    assert Choice(None, 5.0) in found
    assert Choice("allreduce") not in space(["allreduce"], "allreduce", None)
    assert Choice(None, 25.0) in space(["allreduce"], "mine", None)
