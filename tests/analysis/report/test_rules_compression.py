"""The break-even bandwidth: bytes saved over time added; whole jobs are in ``golden/``."""

from __future__ import annotations

from hooktrace.analysis.run.parts import break_even


def test_neither_side_of_the_ratio_may_be_missing() -> None:
    assert break_even(2e6, 2e6) == 1e9
    assert [break_even(*sides) for sides in ((0, 1), (1, 0), (None, 1), (-1, 1), (1, -1))] == (
        [None] * 5
    )
