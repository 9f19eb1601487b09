"""Rules about ranks that keep others waiting, and steps that take too long."""

from __future__ import annotations

from collections.abc import Iterator

from ...records.hook_names import AVERAGES
from ...records.units import listed, ms, named_ranks, percent
from ..run.late import LateRank, why_nobody
from .causes import SLOW
from .facts import IN_TRACE, BucketFacts, Finding, ModelFacts, SlowSteps


def ranks_wait(model: ModelFacts) -> Iterator[Finding]:
    """Gain of a late rank: its mean margin to the next, at the bucket where that is largest.

    Without it all ranks would have waited for the next one instead.  Where no clock tells, it is
    what the rank that waits longest in a step waits at the last bucket, the median over steps, at
    most the exposed time; a rank is named where it compresses for longer there, by half of that.
    Of a sharded model all waits of a step count, since training waits at one unit after another.
    """
    for late in model.late:
        yield _late_rank(model, late)
    if model.late or model.exposed is None or not model.wait_ns or model.is_hidden:
        return
    gain = min(model.wait_ns, model.exposed.p50)
    if gain < 0.2 * model.exposed.p50:
        return
    why = why_nobody(is_order_known=model.is_order_known, is_sharded=model.is_sharded)
    if model.is_sharded:
        yield _units_wait(model, gain, why)
    elif model.last is not None:
        yield _last_bucket_waits(model, model.last, gain, why)


def _last_bucket_waits(model: ModelFacts, last: BucketFacts, gain: float, why: str) -> Finding:
    """Return what ranks wait for each other at the last bucket, where none is late."""
    codec = sorted((r.compress_ns, r.rank) for r in model.ranks if r.compress_ns is not None)
    rank, who = None, f"no rank is named: {why}"
    remedy = f"{IN_TRACE} who comes last, step by step."
    if len(codec) > 1 and (longer := codec[-1][0] - codec[-2][0]) >= gain / 2:
        rank = codec[-1][1]
        who = f"rank {rank} compresses it for {ms(longer)} longer than any other"
        remedy = f"Look at what the hook does on rank {rank} before its first collective."
    elif model.is_order_known and last.waits_for is not None:
        who = f"most often for rank {last.waits_for.rank}, in {percent(last.waits_for.share)}"
        who += f" of the steps; no rank is called late: {why}"
    return Finding(
        sentence=f"Ranks wait for each other: of the time that bucket {last.bucket}, the last, is "
        f"on the wire, {ms(model.wait_ns)} go by until the last rank is in the collective too.",
        rank=rank,
        gain_ns=gain,
        evidence=(
            "so long waits the rank that came first, in the median step; from then on the bucket "
            f"takes {ms(last.transfer_ns)}: that is the transfer",
            who,
        ),
        remedy=remedy,
    )


def _units_wait(model: ModelFacts, gain: float, why: str) -> Finding:
    """Return what ranks wait for each other at all units of a step, where none is named."""
    shares = [((b.wait_ns or 0.0) * b.share_of_steps, b) for b in model.buckets]
    most, where = max(shares, key=lambda one: one[0])
    mostly = [f"most of it at {where.title}"] if most > sum(ns for ns, _ in shares) / 2 else []
    who = f"no rank is named: {why}"
    if where.waits_for is not None:
        who = f"at {where.title} most often for rank {where.waits_for.rank}, in "
        who += f"{percent(where.waits_for.share)} of the steps; no rank is called late: {why}"
    return Finding(
        sentence=f"Ranks wait for each other: in the collectives of a step {ms(model.wait_ns)} go "
        "by until the last rank is in them too.",
        gain_ns=gain,
        evidence=(*mostly, who),
        remedy=f"{IN_TRACE} who comes last, collective by collective.",
    )


def _late_rank(model: ModelFacts, late: LateRank) -> Finding:
    host = {rank.rank: rank.host for rank in model.ranks}[late.rank]
    since, remedy = _since_bucket(model, late)
    others = "all others wait" if model.is_whole else "all others that have a file wait"
    if len(late.waiting) < len(model.ranks) - 1:
        others = _wait(late.waiting)
    return Finding(
        sentence=f"Rank {late.rank}{f' ({host})' if host else ''} is late: at "
        f"bucket {late.bucket} it is last in {percent(late.share)} of the steps, and "
        f"{others} for it, {ms(late.margin_ns)} a step in the mean.",
        bucket=late.bucket,
        rank=late.rank,
        gain_ns=late.margin_ns,
        evidence=(
            f"clocks are known to {ms(late.uncertainty_ns)}; {since}",
            f"it is {ms(late.lag_ns)} behind the median rank",
        ),
        remedy=remedy,
    )


def _wait(ranks: tuple[int, ...]) -> str:
    return f"{named_ranks(ranks)} {'waits' if len(ranks) == 1 else 'wait'}"


def _since_bucket(model: ModelFacts, late: LateRank) -> tuple[str, str]:
    """Return since when a rank is late in a step, and where to look."""
    if late.is_late_from_the_start:
        return (
            "it is late at the first bucket already",
            "Look before its backward pass: data loading, forward pass, optimizer, device.",
        )
    if late.held_ns >= late.lag_ns / 2:
        return (
            f"its hook's calls before that take {ms(late.held_ns)} longer",
            f"Look at what the hook does on rank {late.rank} before its first collective.",
        )
    largest = next(bucket.largest for bucket in model.buckets if bucket.bucket == late.since)
    return (
        f"it falls behind in backward, before bucket {late.since}",
        f"Look at what it computes before bucket {late.since}"
        f"{f', {largest[0]}' if largest else ''}.",
    )


_COMMUNICATION = "in communication"


def slow_steps_cost(model: ModelFacts) -> Iterator[Finding]:
    """Gain: what slow steps take beyond the median period, spread over all steps."""
    slow = model.slow
    if slow is None:
        return
    late, rank = slow.late_rank if model.is_whole else None, None
    cause, remedy = _main_part(model, slow)
    if cause.endswith(_COMMUNICATION) and not model.is_whole:
        remedy = "Whether they wait for a rank without a file is not known: look at those first."
    elif cause.endswith(_COMMUNICATION) and late is not None:
        rank, cause = late, cause.replace(_COMMUNICATION, f"waiting for rank {late}")
        remedy = (
            f"Look at what rank {late} does then: a checkpoint, an evaluation, data loading, "
            "another job on its machine."
        )
    share, backward = slow.share(slow.exposed_excess_ns), slow.share(slow.backward_excess_ns)
    of_excess = f"of the excess {_percent(share)} is exposed communication"
    last = f"others wait for rank {late} in them, up to {ms(slow.late_ns)} in a step"
    if not model.is_sharded:
        of_excess += f", {_percent(backward)} between the first and the last gradient of backward"
        last = f"rank {late} has its last bucket ready after all others, by up to "
        last += ms(slow.late_ns)
        if share is not None and backward is not None:
            of_excess += f", {rest_of(share + backward)}"
    count = len(slow.steps)
    take, noun = ("takes", "step") if count == 1 else ("take", "steps")
    yield Finding(
        sentence=f"{count} of {slow.periods} steps {take} {SLOW:g} times the median or "
        f"more: that costs {ms(slow.excess_ns)} a step, {cause}.",
        steps=slow.steps,
        gain_ns=slow.excess_ns,
        evidence=(
            f"the slowest takes {ms(slow.slowest_ns)}; {noun} {listed(slow.steps, most=6)}",
            of_excess,
            *([last] if late is not None else []),
        ),
        rank=rank,
        remedy=remedy,
    )


def _percent(share: float | None) -> str:
    return "an unknown part" if share is None else percent(share)


def _main_part(model: ModelFacts, slow: SlowSteps) -> tuple[str, str]:
    """Return in what most of the excess is, and what to do about it."""
    share, backward = slow.share(slow.exposed_excess_ns), slow.share(slow.backward_excess_ns)
    outside = "communication" if model.is_sharded else "backward and communication"
    compress = "" if model.hook in AVERAGES else ", and at the hook's compress stage"
    parts = [
        (share, _COMMUNICATION, f"{IN_TRACE} which {model.noun} is slow in them."),
        (backward, "in backward", f"Look at what else the machine does then{compress}."),
        (
            None if share is None or backward is None else 1 - share - backward,
            f"outside of {outside}",
            "Look at data loading, evaluation, checkpoints, gradients that are accumulated, "
            f"{''.join(f'{name}, ' for name in model.beside)}and what else the machine does.",
        ),
    ]
    known = [(part, cause, remedy) for part, cause, remedy in parts if part is not None]
    most, cause, remedy = max(known, default=(0.0, "", ""))
    if most > 0.5:
        return f"mostly {cause}", remedy
    if len(known) < len(parts):
        return "in what is not known", "Look at what else the machine does in these steps."
    return f"the largest part {cause}", remedy


def rest_of(shares: float) -> str:
    """Return what the two shares of an excess, each a median over the ranks, leave over."""
    if shares > 1:
        return "each at its median rank, so that they overlap"
    return "the rest outside of both"
