"""Rules about ranks that keep others waiting, and steps that take too long."""

from __future__ import annotations

from collections.abc import Iterator

from ...records.units import listed, ms, named_ranks, percent
from ..run.order import LateRank, why_nobody
from .build_facts import SLOW
from .facts import Finding, ModelFacts

_IN_TRACE = "See in the merged trace (hooktrace export)"
"""How fixes that need all ranks side by side begin."""


def ranks_wait(model: ModelFacts) -> Iterator[Finding]:
    """Gain of a late rank: its mean margin to the next, at the bucket where that is largest.

    Without it all ranks would have waited for the next one instead.  Where no clock tells, it is
    what the rank that waits longest in a step waits at the last bucket, the median over steps, at
    most its exposed time; a rank is named where it compresses for longer there, by half of that.
    Of a sharded model all waits of a step count, since training waits at one unit after another.
    """
    for late in model.late:
        yield _late_rank(model, late)
    exposed, gain = model.exposed.p50 if model.exposed else 0.0, model.exposed_wait_ns or 0.0
    if model.late or model.is_hidden or not gain or gain < 0.2 * exposed:
        return
    nobody = why_nobody(is_order_known=model.is_order_known, is_sharded=model.is_sharded)
    whom, rank, noun = f"no rank is named: {nobody}", None, "collective by collective"
    shares = [((b.wait_ns or 0.0) * b.share_of_steps, b) for b in model.buckets]
    most, where = max(shares, key=lambda one: one[0])
    is_most = most > sum(ns for ns, _ in shares) / 2
    evidence = [f"most of it at {where.title}"] if is_most else []
    wait = ms(model.wait_ns)
    sentence = f"in the collectives of a step {wait} go by until the last rank is in them too."
    if (last := model.last) is not None and not model.is_sharded:
        where, noun = last, "step by step"
        sentence = (
            f"of the time that bucket {last.bucket}, the last, is on the wire, {wait} go by until "
            "the last rank is in the collective too."
        )
        evidence = [
            "so long waits the rank that came first, in the median step; from then on the bucket "
            f"takes {ms(last.transfer_ns)}: that is the transfer"
        ]
    fix = f"{_IN_TRACE} who comes last, {noun}."
    codec = sorted((r.compress_ns, r.rank) for r in model.ranks if r.compress_ns is not None)
    longer = codec[-1][0] - codec[-2][0] if len(codec) > 1 and not model.is_sharded else 0.0
    if longer >= gain / 2:
        rank = codec[-1][1]
        whom = f"rank {rank} compresses it for {ms(longer)} longer than any other"
        fix = f"Look at what the hook does on rank {rank} before its first collective."
    elif (often := where.waits_for) is not None and (model.is_sharded or model.is_order_known):
        whom = f"{f'at {where.title} ' if model.is_sharded else ''}most often for rank {often.rank}"
        whom += f", in {percent(often.share)} of the steps; no rank is called late: {nobody}"
    yield Finding(
        sentence=f"Ranks wait for each other: {sentence}",
        rank=rank,
        gain_ns=gain,
        evidence=(*evidence, whom),
        fix=fix,
    )


def _late_rank(model: ModelFacts, late: LateRank) -> Finding:
    host = {rank.rank: rank.host for rank in model.ranks}[late.rank]
    since, fix = _since(model, late)
    others = "all others wait" if model.is_whole else "all others that have a file wait"
    if len(late.waiting) < len(model.ranks) - 1:
        others = f"{named_ranks(late.waiting)} {'waits' if len(late.waiting) == 1 else 'wait'}"
    return Finding(
        sentence=f"Rank {late.rank}{f' ({host})' if host else ''} is late: at bucket {late.bucket} "
        f"it is last in {percent(late.share)} of the steps, and {others} for it, "
        f"{ms(late.margin_ns)} a step in the mean.",
        bucket=late.bucket,
        rank=late.rank,
        gain_ns=late.margin_ns,
        evidence=(
            f"clocks are known to {ms(late.uncertainty_ns)}; {since}",
            f"it is {ms(late.arrival_delay_ns)} behind the median rank",
        ),
        fix=fix,
    )


def _since(model: ModelFacts, late: LateRank) -> tuple[str, str]:
    """Return since when a rank is late in a step, and where to look."""
    if late.is_late_from_the_start:
        return (
            "it is late at the first bucket already",
            "Look before its backward pass: data loading, forward pass, optimizer, device.",
        )
    if late.held_ns >= late.arrival_delay_ns / 2:
        return (
            f"its hook's calls before that take {ms(late.held_ns)} longer",
            f"Look at what the hook does on rank {late.rank} before its first collective.",
        )
    where = f"before bucket {late.since}"
    largest = next(bucket.largest for bucket in model.buckets if bucket.bucket == late.since)
    name = f", {largest[0]}" if largest else ""
    return f"it falls behind in backward, {where}", f"Look at what it computes {where}{name}."


def slow_steps_cost(model: ModelFacts) -> Iterator[Finding]:
    """Gain: what slow steps take beyond the median period, spread over all steps."""
    slow = model.slow
    if slow is None:
        return
    share, late = slow.exposed_share, slow.late_rank if model.is_whole else None
    cause = "in what is not known"
    fix = "Look at what else the machine does in these steps."
    if share is not None and share <= 0.5:
        cause = "mostly outside of communication"
        fix = (
            "Look at data loading, evaluation, checkpoints, gradients that are accumulated, "
            f"{''.join(f'{name}, ' for name in model.beside)}and what else the machine does."
        )
    elif share is not None:
        cause, fix = (
            "mostly in communication",
            f"{_IN_TRACE} which {model.noun} is slow in them.",
        )
        if not model.is_whole:
            fix = "Whether they wait for a rank without a file is not known: look at those first."
        elif late is not None:
            cause = f"mostly waiting for rank {late}"
            fix = (
                f"Look at what rank {late} does then: a checkpoint, an evaluation, data loading, "
                "another job on its machine."
            )
    exposed = "an unknown part" if share is None else percent(share)
    last = "has its last bucket ready after all others, by up to"
    take, noun = ("takes", "step") if len(slow.steps) == 1 else ("take", "steps")
    yield Finding(
        sentence=f"{len(slow.steps)} of {slow.periods} steps {take} {SLOW:g} times the median or "
        f"more: that costs {ms(slow.excess_ns)} a step, {cause}.",
        steps=slow.steps,
        gain_ns=slow.excess_ns,
        evidence=(
            f"the slowest takes {ms(slow.slowest_ns)}; {noun} {listed(slow.steps, most=6)}",
            f"of the excess {exposed} is exposed communication, at the median rank",
            *([f"rank {late} {last} {ms(slow.late_ns)}"] if late is not None else []),
        ),
        rank=late if share is not None and share > 0.5 else None,
        fix=fix,
    )
