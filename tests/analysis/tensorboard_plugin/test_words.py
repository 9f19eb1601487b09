"""Times and counts as text; lists, paths, notes and sentences made of them are in ``golden/``."""

from __future__ import annotations

import pytest

from hooktrace.analysis.tensorboard_plugin.words import counted, time_text


@pytest.mark.parametrize(
    ("ns", "expected"),
    [
        (0, "0 ns"), (999, "999 ns"), (1_234, "1.23 µs"), (12_345_678, "12.3 ms"),
        (999_600_000, "1000 ms"), (1_500_000_000, "1.5 s"), (90_000_000_000, "1.5 min"),
    ],
)  # fmt: skip
def test_times_have_three_digits(ns: int, expected: str) -> None:
    assert time_text(ns) == expected


def test_one_is_no_plural() -> None:
    assert (counted(1, "rank"), counted(1024, "rank")) == ("1 rank", "1,024 ranks")
