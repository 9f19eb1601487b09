"""Rules about a sharded model (FSDP2): what training waits for, unit by unit.

Each takes the facts of a model and yields its findings; the docstrings give the arithmetic.  The
rules of ``rules_time.py`` are DDP's: they speak of buckets that are sent while backward computes.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...records import RunInfo
from ...records.units import milliseconds, ms, percent, size
from .facts import IN_TRACE, BucketFacts, Finding, ModelFacts
from .rules_time import HIDDEN, median_of, slow_transfers, what_is_exposed
from .units import are_alike

_NAMED = 4
"""Units that a sentence names."""


def units_are_exposed(model: ModelFacts, run: RunInfo | None) -> Iterator[Finding]:
    """Gain: the median exposed time, all that any other hook, sharding or network could give."""
    exposed, share = model.exposed, model.exposed_share
    if model.exposed is None:
        yield Finding(
            sentence="How long training waits for its collectives is not known: where the "
            "computing stream came to wait was not seen for all of them"
            + (
                f", which are under way for {ms(model.busy_ns)} of each step."
                if model.busy_ns
                else "."
            ),
            remedy="See in the log, and in docs/fsdp.md under Exposed, which are not seen.",
            is_kept=True,
        )
    if exposed is None or share is None or model.period is None:
        return
    sentence = (
        f"Training waits for its collectives for {percent(share)} of the step: "
        f"{milliseconds(exposed.p50)} of {ms(model.period.p50)}."
    )
    if share < HIDDEN:
        sentence = (
            f"Communication is hidden: training waits for its collectives for {percent(share)} of "
            f"the step, so a faster network or hook makes it {ms(exposed.p50)} shorter at most."
        )
    yield Finding(
        sentence=sentence,
        gain_ns=exposed.p50,
        evidence=tuple(_about_exposed(model, run)),
        is_kept=True,
    )


def _about_exposed(model: ModelFacts, run: RunInfo | None) -> Iterator[str]:
    assert model.exposed is not None
    yield median_of(model, model.exposed)
    if not are_alike(model):
        yield (
            "steps are of several kinds: not all have the same collectives, and medians are over "
            "all of them"
        )
    yield from what_is_exposed(model)
    kinds = sorted(model.kinds, key=lambda one: -(one.exposed_ns or 0.0))
    if kinds:
        yield "by kind: " + ", ".join(f"{ms(one.exposed_ns)} {one.name}" for one in kinds)
    shares = sorted(((b.tail_share or 0.0, b.title) for b in model.buckets), reverse=True)
    if len(model.buckets) > _NAMED and shares[0][0] > 0:
        yield "the largest parts are of " + ", ".join(
            f"{title} ({percent(share)})" for share, title in shares[:_NAMED] if share > 0
        )
    if model.is_synchronous:
        where = "on gloo" if run is not None and run.backend == "gloo" else "here"
        yield (
            f"{where} every collective is synchronous: training waits for all of each, nothing "
            "overlaps with computing, and nothing is queued"
        )
    elif model.overlap is not None:
        hidden = percent(max(0.0, model.overlap))
        yield (
            f"collectives are under way for {ms(model.busy_ns)}, {hidden} of it overlapped with "
            "computing"
        )


def unit_is_slow(model: ModelFacts, run: RunInfo | None) -> Iterator[Finding]:
    """Gain: what a unit's transfer takes beyond what it would at the rate of others of its kind.

    A unit is slow as a bucket is (``slow_transfers``), beside those of its kind.  The gain is at
    most its exposed time.
    """
    if not model.has_wire or model.wait_unknown is not None:
        return
    for one in slow_transfers(model.buckets, _same_kind):
        exposed, excess = one.of.exposed, one.excess_ns
        gain = min(excess, exposed.p50) if exposed is not None else excess
        yield Finding(
            sentence=f"{one.of.title} takes long on the wire: {ms(one.took_ns)} for "
            f"{size(int(one.sent))}, where others of its kind, no larger, would take "
            f"{ms(one.usual_ns)}.",
            bucket=one.of.bucket,
            gain_ns=gain * one.of.share_of_steps,
            evidence=(f"beside {one.others} others",),
            remedy=f"{IN_TRACE} what else is on the wire, or computes, while it is.",
        )


def _same_kind(a: BucketFacts, b: BucketFacts) -> bool:
    return (
        a.unit is not None
        and b.unit is not None
        and (a.unit.collective, a.unit.phase) == (b.unit.collective, b.unit.phase)
    )
