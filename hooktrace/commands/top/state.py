"""What one looks at, and what a key changes of it.

View, key, snapshot --pressed--> View, and what to ask the hub: a Command
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ranks.control.messages import Command
from ...ranks.whole_job.snapshot import JobSnapshot, RankRow

SORTS = ("lag", "period", "exposed", "anomalies", "rank")
"""In the order in which the key s goes through them; all but the last with the most on top."""

DETAIL_STEPS = 20


@dataclass(frozen=True)
class View:
    """What one looks at: of a ``model`` (empty: the last), sorted, at a rank.

    ``page``: lines that are shown in place of the ranks, from line ``top`` on.  ``said``: one line
    about what was asked last.  ``trouble``: why there is no newer snapshot.
    """

    model: str = ""
    sort: str = SORTS[0]
    rank: int | None = None
    top: int = 0
    page: tuple[str, ...] | None = None
    said: str = ""
    trouble: str = ""


def sorted_ranks(ranks: tuple[RankRow, ...], sort: str) -> list[RankRow]:
    """Return the rows in the order of a column; by lag they come."""
    if sort == "lag":
        return list(ranks)
    if sort == "rank":
        return sorted(ranks, key=lambda row: row.line.rank)
    of = {
        "period": lambda row: row.line.period_ns,
        "exposed": lambda row: row.line.exposed_ns,
        "anomalies": lambda row: row.line.anomalies,
    }[sort]
    return sorted(ranks, key=lambda row: (-(of(row) or 0), row.line.rank))


def pressed(view: View, key: str, shown: JobSnapshot) -> tuple[View, Command | None]:
    """Return what to look at next, and what to ask."""
    if view.page is not None:
        return _on_page(view, key), None
    if key in _MOVES:
        return replace(view, rank=_moved(view, _MOVES[key], shown)), None
    if key == "s":
        return replace(view, sort=_after(view.sort, SORTS)), None
    if key == "m" and shown.models:
        return replace(view, model=_after(view.model or shown.model, shown.models)), None
    return view, _question(view, key, shown)


def _question(view: View, key: str, shown: JobSnapshot) -> Command | None:
    if key == "d":
        return Command(verb="detail", number=DETAIL_STEPS)
    rank = _moved(view, 0, shown) if key == "enter" else None
    return None if rank is None else Command(verb="stacks", rank=rank)


_MOVES = {"up": -1, "down": 1, "page up": -10, "page down": 10}


def _moved(view: View, by: int, shown: JobSnapshot) -> int | None:
    """Return the rank that is so many rows further; the first where none was chosen."""
    rows = [row.line.rank for row in sorted_ranks(shown.ranks, view.sort)]
    if not rows:
        return None
    if view.rank not in rows:
        return rows[0]
    return rows[min(max(rows.index(view.rank) + by, 0), len(rows) - 1)]


def _on_page(view: View, key: str) -> View:
    if key in _MOVES:
        last = len(view.page or ()) - 1
        return replace(view, top=min(max(view.top + _MOVES[key], 0), max(last, 0)))
    return replace(view, page=None, top=0)


def _after(one: str, names: tuple[str, ...]) -> str:
    """Return the name after one; the first where it is not among them."""
    return names[(names.index(one) + 1) % len(names)] if one in names else names[0]
