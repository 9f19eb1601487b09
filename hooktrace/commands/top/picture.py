"""The picture: a heading, the last steps as a strip, ranks as a table, what is wrong, the keys.

JobSnapshot, View --picture--> text of so many columns and lines
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from ...ranks.whole_job.snapshot import JobSnapshot, RankRow
from ...records import StepSpread
from ...records.units import milliseconds, ms
from .state import DETAIL_STEPS, View, sorted_ranks

_BLOCKS = "▁▂▃▄▅▆▇█"
_KEYS = f"q quit  s sort  m model  ↑↓ rank  enter its stacks  d next {DETAIL_STEPS} steps in detail"
_PAGE_KEYS = "↑↓ scroll  any other key: back"
_SILENT_S = 5.0
_HANG_LINES = 4
_WRONG_LINES = 8


class Picture:
    """What rich draws: as many lines and columns as the terminal has; without one, all lines.

    ``name``: of the run, or of where it was asked.
    """

    def __init__(self, name: str, view: View, shown: JobSnapshot | None) -> None:
        self._name = name
        self._view = view
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # ``Live`` gives no height.
        height = (options.height or console.height) if console.is_terminal else None
        lines = self._lines(options.max_width, height)
        for number, line in enumerate(lines):
            line.truncate(options.max_width, overflow="ellipsis")
            yield from line.render(console)
            # A screen scrolls after a last newline; a file ends with one.
            if height is None or number + 1 < len(lines):
                yield Segment.line()

    def _lines(self, width: int, height: int | None) -> list[Text]:
        """Return ``height`` lines, the last one with the keys; without it all, and no keys."""
        shown, view = self._shown, self._view
        top = [_title(self._name, shown)]
        if shown is not None:
            top += _facts(shown, width)
            top += _strips(shown.steps, width)
        wrong = _wrong(shown, view, width)
        if height is None:
            ranks = [] if shown is None else _table(shown, view, len(shown.ranks))
            return [*top, *ranks, *wrong]
        room = max(height - len(top) - len(wrong) - 1, 0)
        if view.page is not None:
            middle = [Text(line) for line in view.page[view.top : view.top + room]]
        else:
            middle = _table(shown, view, room - 2) if shown is not None else []
        keys = Text(_KEYS if view.page is None else _PAGE_KEYS, style="reverse")
        body = [*top, *middle[:room]]
        padding = [Text()] * max(height - 1 - len(wrong) - len(body), 0)
        return [*body, *padding, *wrong, keys][-height:]


def _title(name: str, shown: JobSnapshot | None) -> Text:
    title = Text(f"hooktrace top  {name}", style="bold")
    if shown is not None and shown.model:
        of = f"  model {shown.model} ({shown.hook})" if shown.hook else f"  model {shown.model}"
        title.append(of)
        if len(shown.models) > 1:
            title.append(f", one of {len(shown.models)}")
    return title


def _facts(shown: JobSnapshot, width: int) -> list[Text]:
    """Return what the last steps say: each number with what it is of."""
    told = f"{shown.told_by:,} of {shown.world_size:,} ranks have told"
    if len(shown.ranks) < shown.told_by:
        told += f", the latest {len(shown.ranks)} are shown"
    if shown.every > 1:
        told += f" of each {shown.every}th step"
    if shown.late or shown.lost:
        told += f"; {shown.late:,} parts of steps came late, {shown.lost:,} steps had no room"
    if not shown.steps:
        return [Text(told), Text("no step yet")]
    step = _last_whole(shown)
    of = f"step {step.step}, {step.ranks:,} ranks: "
    said = of + "; ".join([_period(step), _exposed(step), _arrival(step)])
    return [Text(line) for line in [told, *wrap(said, width)]]


def _last_whole(shown: JobSnapshot) -> StepSpread:
    """Return the last step of which most ranks have told, with times where there is one."""
    most = max(step.ranks for step in shown.steps)
    whole = [step for step in shown.steps if step.ranks == most]
    timed = [step for step in whole if step.period is not None]
    return (timed or whole)[-1]


def _period(step: StepSpread) -> str:
    if step.period is None:
        return "period unknown"
    between = f"{milliseconds(step.period.least_ns)} to {milliseconds(step.period.most_ns)}"
    return f"period {ms(step.period_mean_ns)} ({between})"


def _exposed(step: StepSpread) -> str:
    if step.exposed is None:
        return "exposed unknown"
    between = f"{milliseconds(step.exposed.least_ns)} to {milliseconds(step.exposed.most_ns)}"
    return f"exposed {ms(step.exposed_mean_ns)} ({between})"


def _arrival(step: StepSpread) -> str:
    """Say who came last only where the clocks can tell."""
    if step.lag_ns is None:
        return "lag unknown"
    error = f"± {milliseconds(2 * step.uncertainty_ns)}"
    if step.last_rank is None:
        return f"lag {ms(step.lag_ns)} {error}"
    return f"lag {ms(step.lag_ns)} {error}, last rank {step.last_rank}"


def _strips(steps: Sequence[StepSpread], width: int) -> list[Text]:
    """Return the last steps, a column each: how late the last rank was, and most exposed time."""
    if not steps:
        return []
    room = max(width - 34, 8)
    last = steps[-room:]
    lags = [step.lag_ns for step in last]
    exposed = [None if step.exposed is None else step.exposed.most_ns for step in last]
    return [_strip("lag", lags), _strip("exposed", exposed)]


def _strip(name: str, ns: Sequence[int | None]) -> Text:
    most = max((value for value in ns if value is not None), default=0)
    line = Text(f"{name:<8}")
    line.append("".join(_block(value, most) for value in ns), style="cyan")
    line.append(f"  {len(ns)} steps, up to {ms(most)}" if most else f"  {len(ns)} steps")
    return line


def _block(value: int | None, most: int) -> str:
    """Return a bar as high as the value's part of the largest; a dot where it is not known."""
    if value is None:
        return "·"
    return _BLOCKS[min(value * len(_BLOCKS) // most, len(_BLOCKS) - 1)] if most else _BLOCKS[0]


_COLUMNS = (
    ("rank", 6),
    ("step", 9),
    ("behind", 7),
    ("lag ms", 9),
    ("period ms", 10),
    ("exposed ms", 11),
    ("host", 0),
)
"""Heading and width; the last column has the rest, and what is wrong with the rank."""
_MEANS = "each rank, means of its last steps:"
_SORTED = {"lag": "lag ms", "period": "period ms", "exposed": "exposed ms", "rank": "rank"}


def _table(shown: JobSnapshot, view: View, count: int) -> list[Text]:
    """Return ``count`` ranks below two lines, or nothing; the chosen one is among them."""
    rows = sorted_ranks(shown.ranks, view.sort)
    if not rows or count < 1:
        return []
    chosen = next((i for i, row in enumerate(rows) if row.line.rank == view.rank), 0)
    first = max(min(chosen - count // 2, len(rows) - count), 0)
    lines = [Text(_MEANS), _heading(view)]
    for row in rows[first : first + count]:
        lines.append(_row(row, shown, is_chosen=row.line.rank == view.rank))
    return lines


def _heading(view: View) -> Text:
    line = Text()
    for name, width in _COLUMNS:
        is_sorted = name == _SORTED.get(view.sort)
        line.append(
            f"{name:>{width}}" if width else f"  {name}",
            style=Style(bold=True, underline=is_sorted),
        )
    by = f" (by {view.sort})" if view.sort not in _SORTED else ""
    line.append(by)
    return line


def _row(row: RankRow, shown: JobSnapshot, *, is_chosen: bool) -> Text:
    told = row.line
    is_unsure = row.lag_ns is not None and row.lag_ns < 2 * told.uncertainty_ns
    line = Text(style="reverse" if is_chosen else "")
    line.append(f"{told.rank:>6}{told.step:>9}")
    line.append(f"{row.behind or '':>7}", style="red")
    # What the clocks may be off by is no lag.
    lag = f"<{milliseconds(2 * told.uncertainty_ns)}" if is_unsure else milliseconds(row.lag_ns)
    line.append(f"{lag:>9}", style="dim" if is_unsure else "")
    line.append(f"{milliseconds(told.period_ns):>10}{milliseconds(told.exposed_ns):>11}")
    line.append(f"  {told.host}")
    if row.age_s > max(_SILENT_S, 3 * shown.interval_s):
        line.append(f"  silent for {row.age_s:.0f} s", style="yellow")
    if told.anomalies:
        line.append(f"  {told.anomalies} anomalies, last: {told.anomaly}", style="red")
    return line


def _wrong(shown: JobSnapshot | None, view: View, width: int) -> list[Text]:
    """Return what is wrong and what was said, newest last."""
    hangs: Iterable[str] = shown.hangs if shown is not None else ()
    lines = [
        Text(line, style="bold red")
        for hang in hangs
        for line in wrap(f"hang: {hang}", width)[:_HANG_LINES]
    ]
    if view.trouble:
        lines.append(Text(view.trouble, style="yellow"))
    if view.said:
        lines.append(Text(view.said, style="green"))
    return lines[-_WRONG_LINES:]
