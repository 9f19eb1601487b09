"""Rules about a sharded model (FSDP2): what training waits for, unit by unit.

Each takes the facts of a model and yields its findings; the docstrings give the arithmetic.  The
rules of ``rules_time.py`` are DDP's: they speak of buckets that are sent while backward computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from ...records import RunInfo, Unit
from ...records.units import mb, milliseconds, ms, percent, size
from .facts import BucketFacts, ModelFacts
from .finding import IN_TRACE, Finding
from .rules_time import HIDDEN, what_is_exposed
from .slow_transfers import slow_transfers
from .units import are_alike, calls_of, gathered_twice

_NAMED = 4
"""Units that a sentence names."""

_SLOWEST = 125e6
"""Bytes a second of the slowest network that a rule thinks of, 1 Gbit/s."""

_SMALL = 16_384
"""Bytes on the bus until which a collective may be called small: 0.13 ms of that network."""

_MANY = 8
"""Units from which on it is worth to wrap larger modules."""


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
    yield (
        f"median of {model.steps} steps on {len(model.ranks)} ranks; 95 % of them are below "
        f"{ms(model.exposed.p95)}"
        + (f"; {model.probed} probed steps are not among them" if model.probed else "")
    )
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


def parameters_gathered_twice(model: ModelFacts, run: RunInfo | None) -> Iterator[Finding]:
    """Gain: the exposed time of the backward gathers of units that forward gathered already.

    Less what they wait for the last rank: whoever keeps the parameters waits for it at the next
    collective.  What it costs is memory: all of those parameters then stay whole on each rank from
    forward to backward, where FSDP keeps those of a unit or two, or a part of each.
    """
    twice = gathered_twice([b.unit for b in model.buckets if b.unit is not None])
    backward = calls_of(model, "all_gather", "backward")
    again = [b for b in backward if b.unit and b.unit.name in twice]
    known = [b for b in again if b.exposed is not None]
    if not known or (model.exposed_share or 0) < HIDDEN:
        return
    gain = sum(map(_net, known))
    for kind in model.kinds:  # a sum of medians is not what a step exposes: its tails are missing
        if (
            known[0].unit
            and kind.name == known[0].unit.kind
            and kind.exposed_ns is not None
            and gain
        ):
            gain *= (kind.net_ns or 0.0) / sum(map(_net, backward))
    usual = len([b for b in again if b.share_of_steps >= 0.5])
    memory = "" if model.whole_bytes is None else f" of at most {mb(model.whole_bytes)}"
    waits = ""
    if any(b.wait_ns is None for b in known) and len(model.ranks) > 1:
        waits = "; what they wait for the last rank is in that, where it is not known"
    elif any(b.wait_ns for b in known):
        waits = ", without what they wait for the last rank"
    yield Finding(
        sentence=f"The parameters of {_counted(len(twice), 'unit')} are gathered in forward and "
        f"again in backward: keeping them would save {ms(gain)} a step, for memory{memory} on "
        "each rank.",
        gain_ns=gain,
        evidence=(
            f"{_counted(usual, 'gather')} in backward{waits}",
            "a trade-off and no fault: to reshard after forward is what saves that memory"
            + ("" if model.whole_bytes is None else ", of which a unit or two are whole anyway"),
        ),
        remedy="Where the memory is there, pass reshard_after_forward=False to fully_shard, for "
        "some units or for all.",
    )


def _net(call: BucketFacts) -> float:
    """Return what training waits for a collective, but for the last rank, in the mean step, ns."""
    return (call.net_ns or 0.0) * call.share_of_steps


def units_are_small(model: ModelFacts, run: RunInfo | None) -> Iterator[Finding]:
    """Gain: the transfers of small collectives, but for as many of them as their bytes would need.

    A collective is small when it moves at most 16 kB over the bus and takes twice as long as a
    network of 1 Gbit/s would, or more: most of it is then latency on any network as fast as that.
    Merged until each is larger, there are so many fewer.  What is waited for the last rank is not
    counted, and nothing is said where that is not known.
    """
    small = [b for b in model.buckets if b.share_of_steps >= 0.5 and _is_small(b)]
    names = {b.unit.name for b in small if b.unit is not None}
    if len(names) < _MANY or not model.has_wire or model.wait_unknown is not None:
        return
    time = sum(b.transfer_ns or 0.0 for b in small)
    on_bus = sum(_on_bus(b) or 0.0 for b in small)
    kinds = {(b.unit.collective, b.unit.phase) for b in small if b.unit is not None}
    needed = max(ceil(on_bus / _SMALL), len(kinds))
    if needed >= len(small) / 2:
        return
    each = on_bus / len(small)
    latency = 1 - each / _SLOWEST * 1e9 / (time / len(small))
    gain = time * (1 - needed / len(small))
    if model.exposed is not None:
        gain = min(gain, model.exposed.p50)
    yield Finding(
        sentence=f"{len(names)} units are too small: each of their {len(small)} collectives a step "
        f"moves {size(round(each))} and takes {ms(time / len(small))}, at least {percent(latency)} "
        "of it latency.",
        gain_ns=gain,
        evidence=(
            f"a network of 1 Gbit/s would move so much in {ms(each / _SLOWEST * 1e9)}; the "
            "rest is latency on any as fast",
            f"smallest is {_title_of_smallest(small)}",
        ),
        remedy="Call fully_shard on larger modules, or on several at once: fully_shard([a, b]).",
    )


def _is_small(bucket: BucketFacts) -> bool:
    on_bus = _on_bus(bucket)
    if bucket.transfer_ns is None or on_bus is None or on_bus > _SMALL:
        return False
    return bucket.transfer_ns >= 2e9 * on_bus / _SLOWEST


def _on_bus(bucket: BucketFacts) -> float | None:
    """Return the bytes that bus bandwidth is made of, from that bandwidth."""
    rate, transfer = bucket.busbw_bytes_per_second, bucket.transfer_ns
    return None if rate is None or not transfer else rate * transfer / 1e9


def _title_of_smallest(small: list[BucketFacts]) -> str:
    unit: Unit | None = min(small, key=lambda b: _on_bus(b) or 0.0).unit
    return str(unit)


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


def _counted(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"
