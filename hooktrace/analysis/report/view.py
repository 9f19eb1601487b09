"""All that is said of a run, and the report as a document: findings first, then what they rest on.

RunReport --> the run, what is missing; of each model numbers, findings, pictures, tables
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ...records.errors import UsageError
from ...records.units import bandwidth, mb, ms, percent, size
from ..document.output import check_writable, json_text, put_out
from ..document.tree import Findings, Found, Heading, Items, Node, Pairs, Picture, Text, Tiles, Tone
from ..run import Run
from ..run.counts import steps_left_out
from ..run.dense import StepArrays, settled_steps
from ..run.files import LOCAL, read_run
from ..run.missing import missing
from ..run.others import OtherTraffic, other_traffic
from ..run.source import ModelSource
from .facts import Finding, ModelFacts, model_facts
from .findings import HUNG, findings, recorded
from .pictures import MOST_RANKS, step_pictures
from .rules import hook_lines
from .tables import bucket_table, rank_table, stages_of

_MOST_HOSTS = 8

SCHEMA = 6
"""Of the JSON: changes when a field changes its name or meaning; new fields may come without."""


@dataclass(frozen=True, slots=True)
class ModelReport:
    """One model: what is known, what is said of it, what pictures are drawn from."""

    facts: ModelFacts
    findings: list[Finding]
    arrays: StepArrays


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run, whose files are at ``path``, as that was given.

    ``findings``: hangs and anomalies of models of which no step has settled.  ``missing``:
    sentences, the gravest first.
    """

    run: Run
    path: str | None
    models: list[ModelReport]
    findings: list[Finding]
    missing: list[str]

    @property
    def headline(self) -> str:
        """One line about the run."""
        info, ranks = self.run.info, len(self.run.tracks)
        if info is None:
            return f"a run of {ranks} ranks, of which no file has its first line"
        return (
            f"run {info.run_id}: {ranks} of {info.world_size} ranks, {info.backend}, "
            f"torch {info.torch_version}"
        )

    @property
    def begun(self) -> str | None:
        """When its first process began, UTC, ISO 8601."""
        begun = min((info.wall_anchor_ns for info in self.run.infos), default=None)
        if begun is None:
            return None
        return datetime.fromtimestamp(begun // 10**9, UTC).isoformat(sep=" ")


def build_report(run: Run, *, model: str | None = None, path: str | None = None) -> RunReport:
    """Return the report of a run, of one model or of all that have settled steps."""
    models: list[ModelReport] = []
    unsettled: list[str] = []
    lacking = missing(run)
    for name in [model] if model else run.model_names:
        arrays = settled_steps(run, name)
        if arrays is None:
            unsettled.append(name)
            continue
        facts = model_facts(run, arrays)
        models.append(ModelReport(facts, [*recorded(run, [name]), *findings(facts)], arrays))
        told = {of for track in run.tracks for of, _ in track.unknown_bytes}
        if facts.wire_bytes is None and name not in told:
            lacking.append(f"what {name} sends is not known: its hook is a plain one")
    for name in unsettled:
        seen, why = steps_left_out(run, name)
        said = f"none of {seen:,} steps is included{left_out(why)}" if seen else "no step has ended"
        lacking.append(f"model {name}: {said}{_fix_of(why)}")
    of_none = [""] if model is None else []  # ranks that hung outside of all hooks, before any step
    return RunReport(run, path, models, recorded(run, [*unsettled, *of_none]), lacking)


def _fix_of(left_out: Iterable[str]) -> str:
    """Return what to do where no step is included, for these reasons; "" where nothing helps."""
    if "checked" in left_out:
        return "; turn debug off, or pass a larger error_every"
    return "; train for more steps" if {"warmup", "rebuild"}.intersection(left_out) else ""


def report_json(report: RunReport) -> str:
    """Return findings and facts for programs, as one JSON object with a newline at its end.

    Times are ns, sizes bytes, shares from 0 to 1, and what nobody knows is null.
    """
    run, others = report.run, other_traffic(report.run)
    source = {"path": report.path, "begun": report.begun, "hosts": run.hosts}
    content = {
        "schema": SCHEMA,
        "run": run.info,
        "source": source if others is None else {**source, "others": others},
        "ranks": len(run.tracks),
        "unaligned": run.unaligned,
        "missing": report.missing,
        "models": [{"facts": one.facts, "findings": one.findings} for one in report.models],
        "findings": report.findings,
    }
    return json_text(content)


_WHY = {
    "warmup": "to warm up",
    "join_dummy": "join() dummy steps",
    "incomplete": "not complete",
    "rebuild": "of earlier buckets",
    "checked": "sampled by hooktrace",
    "hang": "that hold a hang",
}


def left_out(steps: dict[str, int]) -> str:
    """Return a clause of how many steps were left out by each reason; "" of none."""
    why = [f"{count:,} {_WHY[reason]}" for reason, count in steps.items()]
    return f"; left out: {', '.join(why)}" if why else ""


def run_report(
    path: str | os.PathLike[str],
    *,
    html: Path | None = None,
    model: str | None = None,
    as_json: bool = False,
    on: str = LOCAL,
    every: int = 1,
) -> None:
    """Print the report of a run, and write it as one HTML file; raises ``UsageError``.

    ``as_json``: print it for programs, and nothing else.  ``on``, ``every``: as ``run.load``.
    """
    if html is not None:
        check_writable(html)
    run = read_run(path, on=on, every=every)
    if model is not None and model not in run.model_names:
        raise UsageError(
            f"no model is called {model!r}; pass --model one of {', '.join(run.model_names)}"
        )
    report = build_report(run, model=model, path=str(path))
    text = report_json(report) if as_json else None
    put_out("hooktrace report", document(report), text, html)


def document(report: RunReport) -> Iterator[Node]:
    """Yield the report's nodes."""
    yield Text(report.headline, "strong")
    yield Pairs([*_of_run(report)])
    if report.missing:
        yield Heading("What is missing")
        yield Items(report.missing, "warn")
    for model in report.models:
        yield from _model(model)
        yield from _pictures(model)
        yield bucket_table(model.facts)
        yield rank_table(model.facts)
    yield from _findings(report.findings, None)


def _of_run(report: RunReport) -> Iterator[tuple[str, str]]:
    yield "begun", f"{report.begun.removesuffix('+00:00')} UTC" if report.begun else "unknown"
    if report.path is not None:
        yield "files", report.path
    hosts = report.run.hosts
    shown, more = hosts[:_MOST_HOSTS], len(hosts) - _MOST_HOSTS
    yield "hosts", ", ".join(shown) + (f" and {more} more" if more > 0 else "") or "unknown"
    if (others := other_traffic(report.run)) is not None:
        yield "other collectives", _of_others(others)


def _of_others(others: OtherTraffic) -> str:
    """Return how much of the communication is of no traced model, in one sentence."""
    groups = others.unseen_groups
    unseen = f"; not seen: {groups} other process group{'s' * (groups != 1)}" if groups else ""
    steps = "1 step was" if others.steps == 1 else f"{others.steps:,} steps were"
    watched = f" ({steps} watched, each until the next one's first bucket{unseen})"
    if not others.count:
        return f"none{watched}"
    text = f"{others.count:,.1f}".removesuffix(".0") + " a watched step"
    if others.share is not None and others.wire_bytes is not None:
        sent, share = size(round(others.wire_bytes)), percent(others.share)
        text += f": {sent}, {share} of what they and traced models send"
    else:
        text += "; their share of the payload is not known"
    if others.in_flight_ns is not None:
        text += f", in flight for {ms(others.in_flight_ns)}; longest: {others.longest}"
    return f"{text}{watched}"


def _model(model: ModelReport) -> Iterator[Node]:
    facts = model.facts
    yield Heading(facts.model, 2)
    on = f"{facts.steps:,} steps on {facts.on_ranks}, {facts.clock} times"
    yield Text(f"{facts.hook}, {on}", "soft")
    yield Tiles([*_tiles(facts)])
    yield Pairs([*_of_model(facts), *hook_lines(facts)])
    yield from _findings([one for one in model.findings if not one.is_small], facts)
    small = [one for one in model.findings if one.is_small]
    if small:
        noise = facts.period_noise_ns
        off = "" if noise is None else f", or below the {ms(noise)} by which its median may be off"
        yield Heading("Small gains")
        yield Text(f"Below 3 % of a step{off}; not worth a lossy change.", "soft")
        rows = ((f"{ms(one.gain_ns)}:", one.sentence, one.fix, one.docs) for one in small)
        yield Items([" ".join(filter(None, row)) for row in rows], "soft")


def _tiles(facts: ModelFacts) -> Iterator[tuple[str, str]]:
    yield ms(facts.period.p50 if facts.period else None), f"in the {facts.median_step}"
    share = percent(facts.exposed_share)
    yield ms(facts.exposed.p50 if facts.exposed else None), f"exposed, {share} of the step"
    beside = "computing" if facts.is_sharded else "backward"
    yield percent(facts.overlap), f"overlap with {beside}"
    yield mb(facts.wire_bytes), f"sent a step, of {mb(facts.gradient_bytes)}"
    if facts.busbw_bytes_per_second is not None:
        yield bandwidth(facts.busbw_bytes_per_second), "bus bandwidth (nccl-tests)"


def _of_model(source: ModelSource) -> Iterator[tuple[str, str]]:
    options = ", ".join(f"{name}={value}" for name, value in source.hook_options)
    if source.is_sharded:
        yield "sharded", "by fully_shard (FSDP2): units take the place of buckets"
    if options or not source.is_sharded:
        yield "hook's options", options or "none recorded"
    if not source.is_sharded:
        # Files of an older hooktrace do not have it either.
        unknown = "not recorded; it is where instrument() registers the hook"
        cap = source.bucket_cap_bytes
        yield "bucket_cap_mb", unknown if cap is None else f"{cap / 2**20:.4g}"
    if source.parameters is not None:
        size_of = "" if source.is_sharded else f", {mb(source.gradient_bytes)} of gradients"
        yield "parameters", f"{source.parameters:,} with {source.elements:,} elements{size_of}"
    yield "steps", _of_steps(source)


def _of_steps(source: ModelSource) -> str:
    text = f"{source.steps:,} of {source.seen:,} are included"
    if source.bucket_steps < source.steps:
        text += f", {source.bucket_steps:,} of them with details that stand for all"
    if source.thin is not None:
        text += f"; {source.thin}"
    return text + left_out(source.left_out)


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
    facts, noun = model.facts, model.facts.noun
    legend, caption = [(name, name) for name in stages_of(facts)], ""
    if facts.wait_unknown is None:
        caption = "Pale: a collective that waits for its last rank. "
        split = [("wait", "wire: straggler wait"), ("wire", "wire: transfer")]
        legend = [x for one in legend for x in (split if one[0] == "wire" else [one])]
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
    for title, draw in step_pictures(model.arrays):
        yield Picture(title, draw, caption, legend)
