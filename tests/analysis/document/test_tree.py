"""What a table says of its columns."""

from __future__ import annotations

from hooktrace.analysis.document.tree import Column, Table


def test_what_columns_hold_is_said_once_and_of_those_that_are_shown() -> None:
    """Behind what is to know of all of the table."""
    ms = "times in ms"
    columns = [Column("a", ms), Column("b", ms), Column("c"), Column("d", "d: x")]
    table = Table("", columns, [], "medians")
    assert table.about([0, 1, 2]) == "medians; times in ms"
    assert table.about([2, 3]) == "medians; d: x"
    assert Table("", columns, []).about([2]) == ""
