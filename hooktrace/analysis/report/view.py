"""The report as a document: findings first, then the pictures and tables that they rest on.

RunReport --> the run, what is missing; of each model numbers, findings, tables; more findings
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...records.units import bandwidth, mb, ms, percent
from ..document.tree import (
    Findings,
    Found,
    Heading,
    Items,
    Node,
    Pairs,
    Picture,
    Text,
    Tiles,
)
from .facts import Finding, ModelFacts
from .pictures import (
    MOST_BARS,
    MOST_CELLS,
    MOST_RANKS,
    lag_picture,
    overlap_picture,
    stages_picture,
    step_pictures,
)
from .provenance import model_lines, run_lines
from .rules_compression import hook_lines
from .run_report import ModelReport, RunReport
from .tables import (
    about_small,
    bucket_table,
    kind_table,
    rank_table,
    red_row,
    stages_of,
    unit_table,
)
from .units import payload_bytes


def document(report: RunReport, *, pictures: bool) -> Iterator[Node]:
    """Yield the report's nodes."""
    yield Text(report.headline, "strong")
    yield Pairs([*run_lines(report.source)])
    if report.missing:
        yield Heading("What is missing")
        yield Items(report.missing, "warn")
    for model in report.models:
        yield from _model(model)
        if pictures:
            yield from _pictures(model, report.unaligned)
        yield from _tables(model.facts)
    yield from _findings(report.findings, None)


def _model(model: ModelReport) -> Iterator[Node]:
    facts = model.facts
    yield Heading(facts.model, 2)
    ranks = f"{len(facts.ranks)} rank{'s' if len(facts.ranks) != 1 else ''}"
    yield Text(f"{facts.hook}, {facts.steps:,} steps on {ranks}, {facts.clock} times", "soft")
    yield Tiles([*_tiles(facts)])
    yield Pairs([*model_lines(model.source), *hook_lines(facts)])
    yield from _findings([one for one in model.findings if not one.is_small], facts)
    small = [one for one in model.findings if one.is_small]
    if small:
        yield Heading("Small gains")
        yield Text(f"{about_small(facts).capitalize()}.", "soft")
        yield Items([f"{ms(x.gain_ns)}: {x.sentence} {x.remedy}".rstrip() for x in small], "soft")


def _tables(facts: ModelFacts) -> Iterator[Node]:
    if facts.is_sharded:
        yield kind_table(facts)
        yield unit_table(facts)
    else:
        yield bucket_table(facts)
    yield rank_table(facts)


def _tiles(facts: ModelFacts) -> Iterator[tuple[str, str]]:
    yield ms(facts.period.p50 if facts.period else None), "a step, median"
    share = percent(facts.exposed_share)
    yield ms(facts.exposed.p50 if facts.exposed else None), f"exposed, {share} of the step"
    beside = "computing" if facts.is_sharded else "backward"
    yield percent(facts.overlap), f"overlap with {beside}"
    sent, given = facts.wire_bytes, facts.gradient_bytes
    if facts.is_sharded:
        gathered, reduced = (payload_bytes(facts, gathered=of) for of in (True, False))
        yield mb(gathered), "of parameters that a rank gives to gathers, a step"
        yield mb(reduced), "of gradients that it gives to reductions, a step"
    # A unit of one number sends more than it gets.
    if not facts.is_sharded or (sent is not None and abs(sent - given) > 0.01 * given):
        yield mb(sent), f"sent a step, of {mb(given)}"
    if facts.busbw_bytes_per_second is not None:
        least = "" if facts.wait_unknown is None else ", at least: with what waits"
        yield bandwidth(facts.busbw_bytes_per_second), f"bus bandwidth (nccl-tests){least}"


def _findings(found: Sequence[Finding], facts: ModelFacts | None) -> Iterator[Node]:
    if found:
        yield Heading("Findings, by what each step would gain at most")
        yield Findings([_found(one, facts) for one in found])
        yield Text("Gains are upper bounds and overlap: they do not add up.", "soft")


def _found(one: Finding, facts: ModelFacts | None) -> Found:
    label, tone, share = "-", "plain", None
    if one.rule == "ranks_hung":
        label, tone = "hang", "wrong" if one.is_wrong else "warn"
    elif one.is_wrong:
        label, tone = "wrong", "wrong"
    elif one.gain_ns is not None:
        label, tone = ms(one.gain_ns), "good"
        if facts is not None and facts.period is not None and facts.period.p50:
            share = min(1.0, one.gain_ns / facts.period.p50)
    return Found(
        label, one.sentence, one.evidence, f"{one.remedy} {one.lossy_remedy}".strip(),
        tone, share,  # type: ignore[arg-type]  # which are tones
    )  # fmt: skip


def _pictures(model: ModelReport, unaligned: Sequence[int]) -> Iterator[Node]:
    facts, arrays = model.facts, model.arrays
    noun = _noun(facts)
    colours = _stage_colours(facts)
    steps = step_pictures(arrays)
    marks = [] if facts.is_sharded else [("exposed", "exposed"), ("ended", "last gradient ready")]
    for i, (title, svg) in enumerate(steps):
        is_last = i == len(steps) - 1
        caption = _step_caption(facts, unaligned) if is_last else ""
        yield Picture(title, svg, caption, [*colours, *marks])
    yield Picture(
        "Overlap and exposed time, step by step", overlap_picture(arrays),
        "Line: median of the ranks. Band: from the least to the most of them. Values above the "
        "axis are cut off.", otherwise="No step's overlap is known.",
    )  # fmt: skip
    first = ""
    if len(facts.buckets) > MOST_BARS:
        first = f"The first {MOST_BARS} of {len(facts.buckets)} {noun}s. "
    waits = ""
    if facts.wait_unknown is None:
        waits = " Hatched: on the wire, until the last rank is in the collective too."
    elif not facts.is_alone:
        waits = f" What of wire is waiting is not known, as {facts.wait_unknown}."
    yield Picture(
        f"Where a {noun}'s time goes", stages_picture(facts),
        f"{first}Medians of each stage, so a bar need not end at the median of the whole.{waits}",
        colours, f"No stage of a {noun} is known.",
    )  # fmt: skip
    alone = "The ranks' clocks are not known to each other, so nobody can be called late."
    yield Picture(
        f"Who is late, and at which {noun}", lag_picture(arrays), _lag_caption(model),
        otherwise="One rank alone has a file." if len(facts.ranks) < 2 else alone,
    )  # fmt: skip


def _noun(facts: ModelFacts) -> str:
    return "unit" if facts.is_sharded else "bucket"


def _stage_colours(facts: ModelFacts) -> list[tuple[str, str]]:
    found = []
    for name in stages_of(facts):
        is_split = name == "wire" and facts.wait_unknown is None
        if is_split:
            found.append(("wait", "wire: waiting for the last rank"))
        found.append((name, "wire: transfer" if is_split else name))
    return found


def _step_caption(facts: ModelFacts, unaligned: Sequence[int]) -> str:
    said, noun = [], _noun(facts)
    if facts.wait_unknown is None:
        said.append("Hatched: a collective that waits for its last rank.")
    elif not facts.is_alone:
        said.append(f"What of wire is waiting is not known, as {facts.wait_unknown}.")
    if len(facts.ranks) > MOST_RANKS:
        said.append(
            f"{MOST_RANKS} of {len(facts.ranks):,} ranks: those whose last {noun} is ready last "
            "and first in the step, and some between."
        )
    stands = "training stands still wherever a collective is drawn, "
    clocks = ""
    if unaligned:
        ranks = ", ".join(map(str, unaligned))
        clocks = f"; the clock of rank {ranks} is unknown and taken from its wall clock"
    said.append(
        f"Each rank on its own row, {stands if facts.is_synchronous else ''}times since the first "
        f"{noun} of the step was ready on any rank, all on one scale{clocks}."
    )
    return " ".join(said)


def _lag_caption(model: ModelReport) -> str:
    facts, noun = model.facts, _noun(model.facts)
    if facts.is_sharded:
        what = " comes to a unit's collective; across: their numbers, as in the table. "
    elif facts.clock == "host":
        what = " has a bucket ready; across: bucket. "
    else:
        what = "'s host calls a bucket's hook; across: bucket. "
    many = len(facts.ranks) > MOST_CELLS[0] or len(facts.buckets) > MOST_CELLS[1]
    several = f"A cell shows the most of several ranks or {noun}s. " if many else ""
    return (
        f"Median time after the first rank at which a rank{what}{several}"
        f"{red_row(facts, model.arrays)}"
    )
