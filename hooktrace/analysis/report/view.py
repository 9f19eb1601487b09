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
    Tone,
)
from .facts import Finding, ModelFacts
from .findings import HUNG
from .head import model_lines, run_lines
from .pictures import MOST_RANKS, step_pictures
from .rules_compression import hook_lines
from .run_report import ModelReport, RunReport
from .tables import bucket_table, rank_table, stages_of


def document(report: RunReport) -> Iterator[Node]:
    """Yield the report's nodes."""
    yield Text(report.headline, "strong")
    yield Pairs([*run_lines(report.source)])
    if report.missing:
        yield Heading("What is missing")
        yield Items(report.missing, "warn")
    for model in report.models:
        yield from _model(model)
        yield from _pictures(model)
        yield bucket_table(model.facts)
        yield rank_table(model.facts)
    yield from _findings(report.findings, None)


def _model(model: ModelReport) -> Iterator[Node]:
    facts = model.facts
    yield Heading(facts.model, 2)
    on = f"{facts.steps:,} steps on {facts.on_ranks}, {facts.clock} times"
    yield Text(f"{facts.hook}, {on}", "soft")
    yield Tiles([*_tiles(facts)])
    yield Pairs([*model_lines(facts), *hook_lines(facts)])
    yield from _findings([one for one in model.findings if not one.is_small], facts)
    small = [one for one in model.findings if one.is_small]
    if small:
        noise = facts.period_noise_ns
        off = "" if noise is None else f", or below the {ms(noise)} by which its median may be off"
        yield Heading("Small gains")
        yield Text(f"Below 3 % of a step{off}; not worth a lossy change.", "soft")
        yield Items([*map(_small, small)], "soft")


def _small(one: Finding) -> str:
    return " ".join(filter(None, [f"{ms(one.gain_ns)}:", one.sentence, one.fix, one.docs]))


def _tiles(facts: ModelFacts) -> Iterator[tuple[str, str]]:
    yield ms(facts.period.p50 if facts.period else None), f"in the {facts.median_step}"
    share = percent(facts.exposed_share)
    yield ms(facts.exposed.p50 if facts.exposed else None), f"exposed, {share} of the step"
    beside = "computing" if facts.is_sharded else "backward"
    yield percent(facts.overlap), f"overlap with {beside}"
    yield mb(facts.wire_bytes), f"sent a step, of {mb(facts.gradient_bytes)}"
    if facts.busbw_bytes_per_second is not None:
        least = "" if facts.wait_unknown is None else ", at least: with what waits"
        yield bandwidth(facts.busbw_bytes_per_second), f"bus bandwidth (nccl-tests){least}"


def _findings(found: Sequence[Finding], facts: ModelFacts | None) -> Iterator[Node]:
    if found:
        yield Heading("Findings, by what each step would gain at most")
        yield Findings([_found(one, facts) for one in found])
        yield Text("Gains are upper bounds and overlap: they do not add up.", "soft")


def _found(one: Finding, facts: ModelFacts | None) -> Found:
    label, share = "-", None
    tone: Tone = "wrong" if one.is_wrong else "plain"
    if one.rule == HUNG:
        label, tone = "hang", "wrong" if one.is_wrong else "warn"
    elif one.is_wrong:
        label = "wrong"
    elif one.gain_ns is not None:
        label, tone = ms(one.gain_ns), "good"
        if facts is not None and facts.period is not None and facts.period.p50:
            share = min(1.0, one.gain_ns / facts.period.p50)
    fix = f"{one.fix} {one.lossy_fix}".strip()
    return Found(label, one.sentence, one.evidence, fix, tone, share, one.docs)


def _pictures(model: ModelReport) -> Iterator[Node]:
    facts, arrays, noun = model.facts, model.arrays, model.facts.noun
    legend = [(name, name) for name in stages_of(facts)]
    caption = ""
    if facts.wait_unknown is None:
        caption = "Hatched: a collective that waits for its last rank. "
        split = [("wait", "wire: straggler wait"), ("wire", "wire: transfer")]
        legend = [x for one in legend for x in (split if one[0] == "wire" else [one])]
    elif not facts.is_alone:
        caption = f"What of wire is waiting is not known, as {facts.wait_unknown}. "
    if not facts.is_sharded:
        legend += [("exposed", "exposed"), ("ended", "last gradient ready")]
    if len(facts.ranks) > MOST_RANKS:
        caption += (
            f"{MOST_RANKS} of {len(facts.ranks):,} ranks: those whose last {noun} is ready last "
            "and first in the step, and some between. "
        )
    caption += (
        f"Each rank on its own row, times since the first {noun} of the step was ready on any "
        "rank, all on one scale."
    )
    pictures = step_pictures(arrays)
    for i, (title, draw) in enumerate(pictures, 1):
        yield Picture(title, draw, caption if i == len(pictures) else "", legend)
