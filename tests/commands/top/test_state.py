"""Keys change what is looked at, and some ask the hub."""

from __future__ import annotations

from msgspec.structs import replace

from hooktrace.commands.top.state import View, pressed, sorted_ranks
from hooktrace.ranks.control.messages import Command

from .snapshots import job

SHOWN = job()
"""Four ranks, by lateness 3, 0, 1, 2."""


def after(*keys: str, shown: object = SHOWN) -> View:
    view = View()
    for key in keys:
        view, _ = pressed(view, key, SHOWN if shown is SHOWN else shown)  # type: ignore[arg-type]
    return view


def test_the_columns_are_gone_through() -> None:
    assert [after(*"s" * n).sort for n in range(6)] == [
        "lag", "period", "exposed", "anomalies", "rank", "lag",
    ]  # fmt: skip


def test_rows_are_sorted_with_the_most_on_top() -> None:
    """Of equal ones the lower rank; what is not known is least."""
    rows = tuple(
        replace(row, line=replace(row.line, exposed_ns=ns, rank=rank))
        for row, ns, rank in zip(SHOWN.ranks, (None, 5, 9, 5), (1, 3, 0, 2), strict=True)
    )
    assert [row.line.rank for row in sorted_ranks(rows, "exposed")] == [0, 2, 3, 1]
    assert [row.line.rank for row in sorted_ranks(rows, "rank")] == [0, 1, 2, 3]
    assert [row.line.rank for row in sorted_ranks(rows, "lag")] == [1, 3, 0, 2]


def test_the_chosen_rank_moves_by_rows() -> None:
    assert [after(*["down"] * n).rank for n in range(6)] == [None, 3, 0, 1, 2, 2]
    assert after("down", "page down", "up").rank == 1


def test_stacks_are_asked_of_the_chosen_rank_and_detail_of_all() -> None:
    """Stacks of the first where none is chosen, of none where there is none."""
    assert pressed(View(rank=1), "enter", SHOWN)[1] == Command(verb="stacks", rank=1)
    assert pressed(View(), "enter", SHOWN)[1] == Command(verb="stacks", rank=3)
    assert pressed(View(), "enter", replace(SHOWN, ranks=()))[1] is None
    assert pressed(View(), "d", SHOWN) == (View(), Command(verb="detail", number=20))


def test_models_are_gone_through() -> None:
    two = replace(SHOWN, models=("net", "critic"))
    assert after("m", shown=two).model == "critic"
    assert after("m", "m", shown=two).model == "net"


def test_a_page_is_scrolled_and_left() -> None:
    """By any other key, which does nothing else."""
    page = View(page=tuple("abcdef"))
    assert pressed(page, "page down", SHOWN)[0].top == 5
    assert pressed(page, "up", SHOWN)[0].top == 0
    assert pressed(page, "s", SHOWN) == (View(), None)
    assert pressed(View(), "x", SHOWN) == (View(), None)
