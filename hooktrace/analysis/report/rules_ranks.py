"""Rules about ranks that keep others waiting, and steps that take too long."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...records import RunInfo
from ...records.hook_names import AVERAGES
from ...records.units import listed, ms, named_ranks, percent
from ..run.late import LateRank, why_nobody
from .causes import SLOW
from .facts import IN_TRACE, BucketFacts, Finding, ModelFacts, SlowSteps, Stall
from .rules_time import HIDDEN


def ranks_wait(model: ModelFacts, run: RunInfo | None) -> Iterator[Finding]:
    """Gain of a late rank: its mean margin to the next, at the bucket where that is largest.

    Without it all ranks would have waited for the next one instead.  Where no clock tells, it is
    what the rank that waits longest in a step waits at the last bucket, the median over steps, at
    most the exposed time; a rank is named where it compresses for longer there, by half of that.
    Of a sharded model all waits of a step count, since training waits at one unit after another.
    """
    for late in model.late:
        yield _late_rank(model, late)
    if model.late or model.exposed is None or not model.wait_ns:
        return
    gain = min(model.wait_ns, model.exposed.p50)
    if (model.exposed_share or 0) < HIDDEN or gain < 0.2 * model.exposed.p50:
        return
    if model.is_sharded:
        yield _units_wait(model, gain)
    elif model.last is not None:
        yield _last_bucket_waits(model, model.last, gain)


def _last_bucket_waits(model: ModelFacts, last: BucketFacts, gain: float) -> Finding:
    """Return what ranks wait for each other at the last bucket, where none is late."""
    codec = sorted((r.compress_ns, r.rank) for r in model.ranks if r.compress_ns is not None)
    rank = None
    who = f"no rank is named: {_why_nobody(model)}"
    remedy = f"{IN_TRACE} who comes last, step by step."
    if len(codec) > 1 and (longer := codec[-1][0] - codec[-2][0]) >= gain / 2:
        rank = codec[-1][1]
        who = f"rank {rank} compresses it for {ms(longer)} longer than any other"
        remedy = f"Look at what the hook does on rank {rank} before its first collective."
    elif model.is_order_known and last.waits_for is not None:
        who = f"most often for rank {last.waits_for.rank}, in {percent(last.waits_for.share)}"
        who += f" of the steps; no rank is called late: {_why_nobody(model)}"
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


def _why_nobody(model: ModelFacts) -> str:
    return why_nobody(
        is_order_known=model.is_order_known,
        is_sharded=model.is_sharded,
        is_on_device=model.clock == "device",
    )


def _units_wait(model: ModelFacts, gain: float) -> Finding:
    """Return what ranks wait for each other at all units of a step, where none is named."""
    who = f"no rank is named: {_why_nobody(model)}"
    shares = [(b.wait_ns or 0.0) * b.share_of_steps for b in model.buckets]
    most = model.buckets[int(np.argmax(shares))]
    mostly = max(shares) > sum(shares) / 2
    return Finding(
        sentence=f"Ranks wait for each other: in the collectives of a step {ms(model.wait_ns)} go "
        "by until the last rank is in them too.",
        gain_ns=gain,
        evidence=(*([f"most of it at {most.title}"] if mostly else []), who),
        remedy=f"{IN_TRACE} who comes last, collective by collective.",
    )


def _late_rank(model: ModelFacts, late: LateRank) -> Finding:
    host = {rank.rank: rank.host for rank in model.ranks}[late.rank]
    who = f"Rank {late.rank} ({host})" if host else f"Rank {late.rank}"
    titles = {bucket.bucket: bucket.title for bucket in model.buckets}
    if model.is_sharded and late.is_late_from_the_start:
        since = "that is the step's first collective"
        remedy = "Look before its forward pass: data loading, optimizer, device."
    elif model.is_sharded:
        before = titles[late.since] + (" of the step before" if late.is_since_step_before else "")
        since = f"it falls behind after {before}, the collective before that"
        if late.members:
            since = f"it falls behind after {before}, where these ranks were together last"
        remedy = f"Look at what it computes between {before} and {titles[late.bucket]}."
    elif late.is_late_from_the_start:
        since = "it is late at the first bucket already"
        remedy = "Look before its backward pass: data loading, forward pass, optimizer, device."
    elif late.held_ns >= late.lag_ns / 2:
        since = f"its hook's calls before that take {ms(late.held_ns)} longer"
        remedy = f"Look at what the hook does on rank {late.rank} before its first collective."
    else:
        since = f"it falls behind in backward, before bucket {late.since}"
        largest = {bucket.bucket: bucket.largest for bucket in model.buckets}[late.since]
        named = f", {largest[0]}" if largest else ""
        remedy = f"Look at what it computes before bucket {late.since}{named}."
    others = "all others wait" if model.is_whole else "all others that have a file wait"
    if len(late.waiting) < len(model.ranks) - 1:
        others = _wait(late.waiting)
    for_it = f"for it, {ms(late.margin_ns)} a step in the mean."
    if late.units > 1:
        for_it = f"for it; at {late.units} collectives {ms(late.margin_ns)} a step in the mean."
    if late.units > 1 and late.members:
        for_it = (
            f"for it; at {late.units} collectives {ms(late.margin_ns)} a step in the mean for the "
            "rank that waits longest."
        )
    among = f", of {named_ranks(late.members)}," if late.members else ""
    return Finding(
        sentence=f"{who} is late: at {titles[late.bucket]}{among} it is last in "
        f"{percent(late.share)} of the steps, and {others} {for_it}",
        bucket=late.bucket,
        rank=late.rank,
        gain_ns=late.margin_ns,
        evidence=(
            f"clocks are known to {ms(late.uncertainty_ns)}; {since}",
            f"it is {ms(late.lag_ns)} behind the "
            + ("median of the others there" if late.members else "median rank"),
            *(
                f"at {titles[one.bucket]}, of {named_ranks(one.members)}, {_wait(one.waiting)} "
                f"for it, {ms(one.margin_ns)} a step in the mean"
                for one in late.elsewhere
            ),
        ),
        remedy=remedy,
    )


def _wait(ranks: tuple[int, ...]) -> str:
    return f"{named_ranks(ranks)} {'waits' if len(ranks) == 1 else 'wait'}"


def slow_steps_cost(model: ModelFacts, run: RunInfo | None) -> Iterator[Finding]:
    """Gain: what slow steps take beyond the median period, spread over all steps."""
    slow = model.slow
    if slow is None:
        return
    count, share = len(slow.steps), _share_of(slow, slow.exposed_excess_ns)
    cause, remedy = _main_part(model, slow)
    late, rank = slow.late_rank if model.is_whole else None, None
    if not model.is_whole and cause.endswith(_COMMUNICATION):
        remedy = "Whether they wait for a rank without a file is not known: look at those first."
    if late is not None and cause.endswith(_COMMUNICATION):
        rank, cause = late, cause.replace(_COMMUNICATION, f"waiting for rank {late}")
        remedy = (
            f"Look at what rank {late} does then: a checkpoint, an evaluation, data loading, "
            "another job on its machine."
        )
    last = f"rank {late} has its last bucket ready after all others, by up to {ms(slow.late_ns)}"
    backward = _share_of(slow, slow.backward_excess_ns)
    of_excess = f"of the excess {_percent(share)} is exposed communication, {_percent(backward)} "
    of_excess += "between the first and the last gradient of backward"
    if share is not None and backward is not None:
        of_excess += f", {rest_of(share + backward)}"
    if model.is_sharded:
        last = f"others wait for rank {late} in them, up to {ms(slow.late_ns)} in a step"
        of_excess = f"of the excess {_percent(share)} is exposed communication"
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


_COMMUNICATION = "in communication"


def _share_of(slow: SlowSteps, ns: float | None) -> float | None:
    return None if ns is None else min(1.0, ns / slow.excess_ns)


def _percent(share: float | None) -> str:
    return "an unknown part" if share is None else percent(share)


def _main_part(model: ModelFacts, slow: SlowSteps) -> tuple[str, str]:
    """Return in what most of the excess is, and what to do about it."""
    share, backward = (
        _share_of(slow, ns) for ns in (slow.exposed_excess_ns, slow.backward_excess_ns)
    )
    noun = "unit" if model.is_sharded else "bucket"
    outside = "communication" if model.is_sharded else "backward and communication"
    parts = [
        (share, _COMMUNICATION, f"{IN_TRACE} which {noun} is slow in them."),
        (
            backward,
            "in backward",
            "Look at what else the machine does then"
            + ("." if model.hook in AVERAGES else ", and at the hook's compress stage."),
        ),
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


def steps_stalled(model: ModelFacts, run: RunInfo | None) -> Iterator[Finding]:
    """Gain: what stalled steps wait beyond the median exposed time, spread over all steps.

    A step is stalled when that is two seconds and a median period, or more (``records.stall``).
    Ranks are named only where their last bucket was ready after that of the one which waited
    longest, by half of that time.
    """
    if not model.stalls:
        return
    worst, count = model.stalls[0], len(model.stalls)
    where = f"{ms(worst.exposed_ns)} of exposed communication, where {ms(worst.usual_ns)} is usual"
    if count == 1:
        sentence = f"Step {worst.step} stalled: {where}."
    else:
        steps = listed([one.step for one in model.stalls], most=6)
        sentence = f"{count} steps stalled, steps {steps}: up to {where}."
    yield Finding(
        sentence=sentence,
        rank=worst.late_ranks[0] if len(worst.late_ranks) == 1 else None,
        steps=tuple(one.step for one in model.stalls),
        gain_ns=sum(one.excess_ns for one in model.stalls) / (model.steps + model.probed),
        evidence=tuple(_about(model, worst)),
        remedy="Look at what stopped or held up a rank, its machine or the network at that time.",
        is_kept=True,
    )


def _about(model: ModelFacts, stall: Stall) -> Iterator[str]:
    """Yield what is known of a stalled step."""
    of = "" if len(model.stalls) == 1 else f"of step {stall.step}: "
    if stall.is_probed:
        yield f"{of}hooktrace probed the step, and that may be a part of it"
        return
    if stall.bucket is not None:
        titles = {bucket.bucket: bucket.title for bucket in model.buckets}
        where = f"stage {stall.stage} of {titles.get(stall.bucket, f'bucket {stall.bucket}')}"
        yield f"{of}rank {stall.rank} waited longest, most of it in {where}"
    missing = "" if model.is_whole else ", or a rank without a file"
    came = ", whose last bucket was ready"
    together = "all ranks had their last bucket ready"
    if model.is_sharded:
        came, together = ", which came to that collective", "all its ranks came to that collective"
    if stall.late_ranks:
        who = named_ranks(stall.late_ranks)
        yield f"{of}it waited for {who}{came} up to {ms(stall.spread_ns)} later"
    elif stall.spread_ns is not None:
        yield (
            f"{of}{together} within {ms(stall.spread_ns)}: who held it up after that is not known; "
            f"it may be a rank that was stopped then{missing}, or the network"
        )
    else:
        yield f"{of}who held it up is not known: not all ranks' times and clocks are"
