"""A merged summary to the report that print and JSON take: the same facts, rules and sentences.

    Summary --model_of--> ModelFacts --report's rules--> findings --+--> RunReport
        late.py: who is late, slow steps ----^      what is not known +

Medians are of sketches over all ranks and steps (``sketch.RANK_ERROR``); a rank's own are exact.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from ...records.units import named_ranks
from ..report import RunReport
from ..report.facts import (
    OFTEN_SENT,
    BucketError,
    BucketFacts,
    KindFacts,
    ModelFacts,
    RankFacts,
    Spread,
    WaitsFor,
)
from ..report.findings import anomaly_findings, findings
from ..report.noise import noise_ns
from ..report.provenance import RunSource
from ..report.run_report import ModelReport, not_of_units
from ..report.units import in_order
from .late import Late, lateness, periods, slow_steps
from .sketch import RANK_ERROR
from .summary import Errors, Job, ModelSummary, Summary

NOT_KNOWN = (
    "which stage and rank held up a step that stalled, how a hang went, whom a rank in the middle "
    "waited for, and pictures"
)


def report_of(
    summary: Summary, job: Job, *, model: str | None = None, path: str | None = None
) -> RunReport:
    """Return the report of a summary, of one model or of all that have settled steps."""
    wanted = [name for name in summary.names if model in (None, name)]
    models, notes = [], []
    for name in wanted:
        if name not in summary.models:
            notes.append(f"model {name}: no step has settled, so there is nothing to measure")
            continue
        late = lateness(summary.models[name], job.origin_ns)
        facts = model_of(summary, summary.models[name], job, late)
        models.append(
            ModelReport(facts, findings(facts, job.run), None, summary.models[name].source)
        )
        notes += not_of_units(facts)
        notes += [f"model {name}: {text}" for text in late.unknown]
    unsettled = [
        facts for (name, _), facts in summary.anomalies.items() if name not in summary.models
    ]
    return RunReport(
        run=job.run,
        ranks=len(summary.ranks),
        models=models,
        findings=anomaly_findings(tuple(unsettled)),
        missing=[*_of_ranks(summary, job), *notes, *_of_summaries(summary, job)],
        unaligned=sorted(summary.unaligned) if len(summary.ranks) > 1 else [],
        source=RunSource(
            path=path,
            begun=next(iter(summary.begun), None),
            hosts=tuple(dict.fromkeys(summary.hosts[rank] for rank in sorted(summary.hosts))),
        ),
    )


def _of_ranks(summary: Summary, job: Job) -> Iterator[str]:
    size = job.run.world_size if job.run is not None else len(summary.ranks)
    if absent := set(range(size)) - summary.ranks:
        yield (
            f"{named_ranks(absent)}: no record file; the run has {size} ranks, so whoever is late "
            "among them is not seen"
        )
    if summary.unaligned and len(summary.ranks) > 1:
        yield (
            f"{named_ranks(summary.unaligned)}: the clock was not measured against rank 0's, so no "
            "rank is called late"
        )
    if summary.other_runs:
        yield f"{named_ranks(summary.other_runs)}: the file is of an earlier run and was left out"
    if summary.hung:
        yield (
            f"{named_ranks(summary.hung)}: hangs are recorded; hooktrace hang tells them, and the "
            "steps that hung are not among the numbers of these ranks"
        )
    for text, ranks in summary.missing.items():
        yield f"{named_ranks(ranks)}: {text}"


def _of_summaries(summary: Summary, job: Job) -> Iterator[str]:
    low, high = 50 - 100 * RANK_ERROR, 50 + 100 * RANK_ERROR
    yield (
        f"percentiles over all ranks are of sketches: a median is between the {low:g}th and the "
        f"{high:g}th percentile; waits and lags are means over the ranks, and a slow step is told "
        "by its mean period; counts of steps are those of the rank that has most"
    )
    if job.every > 1:
        yield f"of all steps, every {job.every}th was looked at for who is late, and which are slow"
    yield f"not known from summaries: {NOT_KNOWN}; read fewer ranks without --on for these"


def model_of(summary: Summary, m: ModelSummary, job: Job, late: Late) -> ModelFacts:
    """Return the facts of a model."""
    period, exposed = _spread(m, "period"), _spread(m, "exposed")
    share = exposed.p50 / period.p50 if exposed and period and period.p50 else None
    is_whole = job.run is not None and job.run.world_size == len(m.ranks)
    why = _wait_unknown(m, job)
    buckets = sorted(m.gradient_bytes)
    if m.shards is not None:
        buckets = [b for b in buckets if b in m.shards.units]
    total = sum(m.tails.values()) or 1.0
    wait = None if why is not None or m.shards is not None else late.wire_of(m, m.last)[1]
    others = None if wait is None else wait * len(m.ranks) / (len(m.ranks) - 1)
    return ModelFacts(
        model=m.model,
        hook=m.hook,
        clock="device" if m.is_on_device else "host",
        steps=m.steps,
        bucket_steps=m.source.sampled,
        probed=m.source.probed,
        period=period,
        period_noise_ns=noise_ns(periods(m)[None]),
        exposed=exposed,
        exposed_share=share,
        overlap=_at(m, "overlap"),
        busy_ns=_at(m, "busy"),
        wire_busy_ns=_at(m, "wire_busy"),
        queued_ns=_at(m, "queue"),
        turn_ns=_at(m, "turn"),
        gradient_bytes=int(_at(m, "gradient_bytes") or 0),
        wire_bytes=_at(m, "wire_bytes"),
        least_wire_bytes=_at(m, "wire_bytes", 0.0),
        often_wire_bytes=_at(m, "wire_bytes", 1 - OFTEN_SENT),
        busbw_bytes_per_second=_at(m, "busbw") if why is not None else None,
        is_32_bit=m.widths == {4.0},
        is_whole=is_whole,
        is_order_known=not summary.unaligned and len(m.ranks) > 1,
        wait_unknown=why,
        buckets=tuple(
            _bucket(m, b, late, m.tails[b] / total if b in m.tails else None, why) for b in buckets
        ),
        ranks=tuple(_rank(m, rank, late) for rank in sorted(m.ranks)),
        late=late.ranks,
        slow=slow_steps(m),
        stalls=(),
        hangs=(),
        anomalies=tuple(
            sorted(
                (facts for (name, _), facts in summary.anomalies.items() if name == m.model),
                key=lambda one: one.first.step,
            )
        ),
        is_sharded=m.shards is not None,
        is_synchronous=m.shards is not None and m.shards.is_synchronous,
        kinds=_kinds(m),
        whole_bytes=None if m.shards is None else m.shards.whole_bytes,
        wait_ns=others,
        # Whoever is last waits for nobody: what is exposed there is no waiting.
        net_exposed_ns=min((x for r in m.ranks.values() if (x := r.facts.exposed_ns)), default=None)
        if wait
        else _at(m, "exposed"),
    )


def net_of(exposed: float | None, wait: float | None) -> float | None:
    """Return what is exposed but for waiting, by a median and a mean."""
    return None if exposed is None else max(0.0, exposed - (wait or 0.0))


def _kinds(m: ModelSummary) -> tuple[KindFacts, ...]:
    units = [] if m.shards is None else sorted(m.shards.units.values(), key=in_order)
    return tuple(
        KindFacts(
            name=kind,
            count=round(_at(m, f"count of {kind}") or 0),
            fewest=round(_at(m, f"count of {kind}", 0.0) or 0),
            most=round(_at(m, f"count of {kind}", 1.0) or 0),
            payload_bytes=round(_at(m, f"payload of {kind}") or 0),
            duration_ns=_at(m, f"time of {kind}"),
            exposed_ns=_at(m, f"exposed of {kind}"),
            wait_ns=None,
            net_ns=_at(m, f"exposed of {kind}"),
        )
        for kind in dict.fromkeys(unit.kind for unit in units)
    )


def _wait_unknown(m: ModelSummary, job: Job) -> str | None:
    if job.run is not None and job.run.world_size > len(m.ranks):
        count = f"{len(m.ranks)} of {job.run.world_size} ranks"
        return f"{count} have steps here, and the last one may be among the others"
    if len(m.ranks) < 2:
        return "there is one rank"
    if m.shards is not None and not m.shards.is_whole:
        return "some collectives are of a part of the ranks, or are numbered otherwise on some"
    if not (m.by_bucket.columns["count"] == len(m.ranks)).any():
        return "of an opaque hook nobody sees its collectives"
    return None


def _bucket(
    m: ModelSummary, b: int, late: Late, tail: float | None, why: str | None
) -> BucketFacts:
    parameters, largest = m.parameters.get(b, (0, None))
    names = [key[0] for key in m.sketches if isinstance(key, tuple) and key[1] == b]
    stages = {n.removeprefix("stage "): _at(m, (n, b)) for n in names if n.startswith("stage ")}
    transfer, wait = (None, None) if why is not None else late.wire_of(m, b)
    share = late.shares.get(b)
    return BucketFacts(
        bucket=b,
        is_last=b == m.last,
        parameters=parameters,
        largest=largest,
        gradient_bytes=m.gradient_bytes[b],
        wire_bytes=_at(m, ("wire_bytes", b)),
        ready_ns=_at(m, ("ready", b)),
        duration=_spread(m, ("duration", b)),
        call_ns=_at(m, ("call", b)),
        stages={name: ns for name, ns in stages.items() if ns is not None},
        transfer_ns=transfer,
        wait_ns=wait,
        waits_for=None if share is None or wait is None else WaitsFor(*share),
        busbw_bytes_per_second=_busbw(_at(m, ("busbw", b)), stages.get("wire"), transfer),
        tail_share=tail,
        error=_error(m.errors.get(b)),
        unit=None if m.shards is None else m.shards.units.get(b),
        exposed=_spread(m, ("exposed", b)),
        net_ns=net_of(_at(m, ("exposed", b)), wait),
        share_of_steps=1.0 if m.shards is None else m.shards.in_steps.get(b, 1.0),
    )


def _busbw(rate: float | None, wire: float | None, transfer: float | None) -> float | None:
    """Return the rate of a bucket's transfer, from that of all its time on the wire."""
    return rate * wire / transfer if rate and wire and transfer else rate


def _error(errors: Errors | None) -> BucketError | None:
    if errors is None:
        return None
    p50, cosine = errors.sketch.at(0.5) or 0.0, errors.cosines.at(0.5)
    return replace(errors.worst, p50=p50, cosine=cosine)


def _rank(m: ModelSummary, rank: int, late: Late) -> RankFacts:
    return replace(m.ranks[rank].facts, lag_ns=late.lags.get(rank))


def _at(m: ModelSummary, name: str | tuple[str, int], share: float = 0.5) -> float | None:
    return m.sketches[name].at(share) if name in m.sketches else None


def _spread(m: ModelSummary, name: str | tuple[str, int]) -> Spread | None:
    p50, p95 = _at(m, name), _at(m, name, 0.95)
    return None if p50 is None or p95 is None else Spread(p50, p95)
