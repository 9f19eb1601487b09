"""The report as one HTML file: nothing is loaded, nothing runs; all names are escaped.

RunReport --templates/report.html.j2--> head, tiles, findings, pictures, tables, what is missing
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ...records.units import bandwidth, mb, ms, percent
from .facts import ModelFacts
from .pictures import error_picture, lag_picture, overlap_picture, stages_picture
from .run_report import ModelReport, RunReport
from .step_picture import step_pictures
from .tables import bucket_columns, rank_columns, stages_of

_PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    keep_trailing_newline=True,
)
_PAGES.filters.update(bandwidth=bandwidth, mb=mb, ms=ms, percent=percent)


def page(report: RunReport) -> str:
    """Return the whole page."""
    return _PAGES.get_template("report.html.j2").render(
        report=report,
        pictures=partial(_pictures, unaligned=report.unaligned),
        bucket_columns=bucket_columns,
        rank_columns=rank_columns,
    )


@dataclass(frozen=True, slots=True)
class _Picture:
    """A picture with what stands around it; ``otherwise`` stands in place of one that is empty.

    ``legend``: class of the colour and what it stands for.
    """

    title: str
    svg: Markup
    caption: str
    legend: tuple[tuple[str, str], ...] = ()
    otherwise: str = ""


def _pictures(model: ModelReport, *, unaligned: list[int]) -> Iterator[_Picture]:
    facts, arrays = model.facts, model.arrays
    stages = [(name, name) for name in stages_of(facts)]
    steps = step_pictures(arrays)
    for i, step in enumerate(steps, 1):
        marks = [*stages, ("exposed", "exposed"), ("ended", "last gradient ready")]
        caption = _of_steps(arrays.ranks, unaligned) if i == len(steps) else ""
        yield _Picture(step.title, Markup(step.svg), caption, tuple(marks))
    yield _Picture(
        "Overlap and exposed time, step by step",
        Markup(overlap_picture(arrays)),
        "Line: median of the ranks. Band: from the least to the most of them. Values above the "
        "axis are cut off.",
        otherwise="No step's overlap is known.",
    )
    wait = ("wait", "wire: wait for the last rank")
    yield _Picture(
        "Where a bucket's time goes",
        Markup(stages_picture(facts)),
        "Medians of each stage, so a bar need not end at the median of the whole. Of wire the "
        "wait for the last rank is set apart: the median wire time less that of the rank that "
        "waits least.",
        tuple(p for one in stages for p in ([wait, one] if one[0] == "wire" else [one])),
        "No stage of a bucket is known.",
    )
    yield _Picture(
        "Who is late, and at which bucket",
        Markup(lag_picture(arrays, model.lags)),
        "Median time after the first rank at which a rank has a bucket ready; across: bucket.",
        otherwise="The ranks' clocks are not known to each other, so nobody can be called late.",
    )
    yield _Picture(
        "What the hook loses",
        Markup(error_picture(facts)),
        "Relative L2 error against a lossless average. Dot: median of the probes. Line: to the "
        "largest.",
        otherwise=_no_error(facts),
    )


def _of_steps(ranks: list[int], unaligned: list[int]) -> str:
    unknown = ", ".join(str(rank) for rank in unaligned if rank in ranks)
    clocks = f"; the clock of rank {unknown} is unknown and taken from its wall clock"
    return (
        "Each rank on its own row, times since the first bucket of the step was ready on any rank, "
        f"all on one scale{clocks if unknown else ''}."
    )


def _no_error(model: ModelFacts) -> str:
    probes = sum(b.error.count for b in model.buckets if b.error is not None)
    if probes:
        return f"The error was 0 in all of {probes} probes."
    return "No bucket's error was measured: no probe fell into these steps."
