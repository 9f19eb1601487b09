"""The picture: a heading, the last steps as a strip, ranks as a table, what is wrong.

JobSnapshot --picture--> text of so many columns and lines
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from ...ranks.whole_job.job_steps import JobSnapshot, RankRow, interval_s, told_every
from ...records import StepSpread
from ...records.job import Range
from ...records.units import milliseconds, ms

_BLOCKS = "▁▂▃▄▅▆▇█"
_FOOT = "Ctrl-C quits  (stacks, detail: hooktrace ctl)"
_SILENT_S = 5.0
_HANG_LINES = 4
_WRONG_LINES = 8


def sorted_ranks(ranks: tuple[RankRow, ...], sort: str) -> list[RankRow]:
    """Return the rows in the order of a column; by delay they come."""
    if sort == "delay":
        return list(ranks)
    if sort == "rank":
        return sorted(ranks, key=lambda row: row.line.rank)
    name = sort if sort == "anomalies" else f"{sort}_ns"
    return sorted(ranks, key=lambda row: (-(getattr(row.line, name) or 0), row.line.rank))


class Picture:
    """What rich draws: as many lines and columns as the terminal has; without one, all lines.

    ``name``: of the run, or of where it was asked.  ``trouble``: why there is no newer snapshot.
    """

    def __init__(
        self, name: str, shown: JobSnapshot, *, sort: str = "delay", trouble: str = ""
    ) -> None:
        self._name, self._shown, self._sort, self._trouble = name, shown, sort, trouble

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
        """Return ``height`` lines, the last one says how to end it; without it all but that."""
        shown, sort = self._shown, self._sort
        top = [_title(self._name, shown), *_facts(shown, width), *_strips(shown.steps, width)]
        wrong = _wrong(shown, self._trouble, width)
        if height is None:
            return [*top, *_table(shown, sort, len(shown.ranks)), *wrong]
        room = max(height - len(top) - len(wrong) - 1, 0)
        body = [*top, *_table(shown, sort, room - 2)]
        padding = [Text()] * max(height - 1 - len(wrong) - len(body), 0)
        return [*body, *padding, *wrong, Text(_FOOT, style="reverse")][-height:]


def _title(name: str, shown: JobSnapshot) -> Text:
    title = Text(f"hooktrace top  {name}", style="bold")
    if shown.model:
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
    if (every := told_every(shown.world_size)) > 1:
        told += f" of each {every}th step"
    if shown.lost:
        told += f"; {shown.lost:,} steps had no room"
    if not shown.steps:
        return [Text(told), Text("no step yet")]
    step = _last_whole(shown)
    period = _spread("period", step.period_mean_ns, step.period)
    exposed = _spread("exposed", step.exposed_mean_ns, step.exposed)
    said = f"step {step.step}, {step.ranks:,} ranks: {period}; {exposed}; {_arrival(step)}"
    return [Text(line) for line in [told, *wrap(said, width)]]


def _last_whole(shown: JobSnapshot) -> StepSpread:
    """Return the last step of which most ranks have told, with times where there is one."""
    most = max(step.ranks for step in shown.steps)
    whole = [step for step in shown.steps if step.ranks == most]
    timed = [step for step in whole if step.period is not None]
    return (timed or whole)[-1]


def _spread(name: str, mean_ns: float | None, spread: Range | None) -> str:
    if spread is None:
        return f"{name} unknown"
    between = f"{milliseconds(spread.least_ns)} to {milliseconds(spread.most_ns)}"
    return f"{name} {ms(mean_ns)} ({between})"


def _arrival(step: StepSpread) -> str:
    """Say who came last only where the clocks can tell."""
    if step.arrival_delay_ns is None:
        return "delay unknown"
    error = f"± {milliseconds(2 * step.uncertainty_ns)}"
    if step.last_rank is None:
        return f"delay {ms(step.arrival_delay_ns)} {error}"
    return f"delay {ms(step.arrival_delay_ns)} {error}, last rank {step.last_rank}"


def _strips(steps: Sequence[StepSpread], width: int) -> list[Text]:
    """Return the last steps, a column each: how late the last rank was, and most exposed time."""
    if not steps:
        return []
    room = max(width - 34, 8)
    last = steps[-room:]
    delays = [step.arrival_delay_ns for step in last]
    exposed = [None if step.exposed is None else step.exposed.most_ns for step in last]
    return [_strip("delay", delays), _strip("exposed", exposed)]


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
    ("delay ms", 9),
    ("period ms", 10),
    ("exposed ms", 11),
    ("host", 0),
)
"""Heading and width; the last column has the rest, and what is wrong with the rank."""
_MEANS = "each rank, means of its last steps:"
_SORTED = {"delay": "delay ms", "period": "period ms", "exposed": "exposed ms", "rank": "rank"}


def _table(shown: JobSnapshot, sort: str, count: int) -> list[Text]:
    """Return the first ``count`` ranks below two lines, or nothing."""
    rows = sorted_ranks(shown.ranks, sort)[: max(count, 0)]
    return [Text(_MEANS), _heading(sort), *(_row(row, shown) for row in rows)] if rows else []


def _heading(sort: str) -> Text:
    line = Text()
    for name, width in _COLUMNS:
        is_sorted = name == _SORTED.get(sort)
        line.append(
            f"{name:>{width}}" if width else f"  {name}",
            style=Style(bold=True, underline=is_sorted),
        )
    line.append(f" (by {sort})" if sort not in _SORTED else "")
    return line


def _row(row: RankRow, shown: JobSnapshot) -> Text:
    told = row.line
    is_unsure = row.arrival_delay_ns is not None and row.arrival_delay_ns < 2 * told.uncertainty_ns
    line = Text(f"{told.rank:>6}{told.step:>9}")
    # What the clocks may be off by is no delay.
    delay = (
        f"<{milliseconds(2 * told.uncertainty_ns)}"
        if is_unsure
        else milliseconds(row.arrival_delay_ns)
    )
    line.append(f"{delay:>9}", style="dim" if is_unsure else "")
    line.append(f"{milliseconds(told.period_ns):>10}{milliseconds(told.exposed_ns):>11}")
    line.append(f"  {told.host}")
    if row.age_s > max(_SILENT_S, 3 * interval_s(shown.world_size)):
        line.append(f"  silent for {row.age_s:.0f} s", style="yellow")
    if told.anomalies:
        line.append(f"  {told.anomalies} anomalies, last: {told.anomaly}", style="red")
    return line


def _wrong(shown: JobSnapshot, trouble: str, width: int) -> list[Text]:
    """Return what is wrong, newest last."""
    lines = [
        Text(line, style="bold red")
        for hang in shown.hangs
        for line in wrap(f"hang: {hang}", width)[:_HANG_LINES]
    ]
    if trouble:
        lines.append(Text(trouble, style="yellow"))
    return lines[-_WRONG_LINES:]
