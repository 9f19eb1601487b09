"""Lists of ranks and times as people read them."""

from __future__ import annotations

import doctest

from hooktrace.ranks.hang import sentences


def test_examples() -> None:
    """Those in the docstrings."""
    assert doctest.testmod(sentences).failed == 0


def test_many_places_are_cut() -> None:
    """A hundred ranks in a hundred places."""
    said = sentences.each(range(100), lambda rank: f"is in line {rank}")
    assert said.count("is in line") == 4
    assert said.endswith("; and 96 more")
