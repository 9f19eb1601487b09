"""What is slow, or loses much: a function each from a model's facts to findings, if it has any.

The docstrings give the arithmetic of the gain.  Rules of a sharded model speak of units, for which
training waits one after another; all others are DDP's, whose buckets are sent while backward
computes.  Of compression:

    break-even bandwidth = bytes that a step saves / time that compress and decompress add to it

On a faster link those bytes would take less time than they cost.  It holds where transfers and
codec are both on the critical path; where part of either is hidden, the real limit is elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import numpy as np

from ...records.compression_error import vnmse
from ...records.hook_names import AVERAGES
from ...records.units import bandwidth, counted, listed, mb, milliseconds, ms, named_ranks, percent
from ..run.order import LateRank, why_nobody
from .facts import SLOW, BucketError, BucketFacts, Finding, ModelFacts

WORTH_TWO = 2 << 20
"""Bytes of gradients from which on they are worth more than one bucket."""

LATENCY = 100_000
"""Bytes below which a transfer is mostly latency, whatever the network: 10 Gbit/s take 80 us."""

LARGE_ERROR = 0.1
"""Relative L2 error from which on a bucket is named; casts to 16 bits lose less than 0.005 of what
is in their range."""

_SAME_WAY = 0.999
"""Cosine from which on a large error is one of scale: what is off sideways is below 0.05."""

_CODEC = ("compress", "decompress")
_STEPS = "hook_then_optimizer"
"""A hook whose decompress holds the optimizer's step."""

_LEAST_SAVED = 0.05
"""Share of a step's bytes below which nothing is called saved."""

_IN_TRACE = "See in the merged trace (hooktrace export)"
"""How fixes that need all ranks side by side begin."""


def communication_is_exposed(model: ModelFacts) -> Iterator[Finding]:
    """Gain: the median exposed time, all that any other hook, sharding or network could give.

    A faster network cannot give more: what is not exposed overlaps with computing.
    """
    if model.exposed is None or model.exposed_share is None or model.period is None:
        if model.is_sharded:
            flight = model.communication_ns
            busy = f", which are in flight for {ms(flight)} of each step" if flight else ""
            yield Finding(
                sentence="How long training waits for its collectives is not known: where the "
                f"computing stream came to wait was not seen for all of them{busy}.",
                fix="See in the log, and in docs/fsdp.md under Exposed, which are not seen.",
                is_kept=True,
            )
        return
    share, exposed = percent(model.exposed_share), ms(model.exposed.p50)
    part = f"{milliseconds(model.exposed.p50)} of {ms(model.period.p50)}"
    if model.is_sharded:
        said = f"training waits for its collectives for {share} of the step"
        sentence = f"{said[:1].upper()}{said[1:]}: {part}."
        what, beside, leaves = "collectives", "computing", "the largest parts"
    else:
        said = f"{share} of the step is exposed"
        sentence = (
            f"Exposed communication is {share} of the step: {part} go by when backward has nothing "
            "left to compute."
        )
        what, beside, leaves = "buckets", "the backward pass", "what backward leaves over"
    if model.is_hidden:
        sentence = (
            f"Communication is hidden: {said}, so a faster network or hook makes it {exposed} "
            "shorter at most."
        )
    if model.wire_bytes == 0:
        sentence = f"Nothing is communicated: {model.hook} sends nothing."
    sampled = model.left_out.get("checked", 0)
    are = "is" if sampled == 1 else "are"
    checked = f"; {counted(sampled, 'sampled step')} {are} not among them" if sampled else ""
    kinds = model.several_kinds
    if not model.are_alike:
        kinds = "steps are of several kinds: not all have the same collectives; medians are of all"
    yield Finding(
        sentence=sentence,
        gain_ns=model.exposed.p50,
        evidence=(
            f"that is the {model.median_step}, of {model.steps} steps on {model.on_ranks}; 95 % "
            f"of them are below {ms(model.exposed.p95)}{checked}",
            f"{what} are in flight for {ms(model.communication_ns)} of the step, "
            f"{percent(model.overlap)} of it overlapped with {beside}",
            *_what_is_exposed(model),
            *([kinds] if kinds else []),
            *_largest_parts(model, leaves),
        ),
        fix="Lower bucket_cap_mb: all is in one bucket, which is ready when backward ends."
        if _is_one_large_bucket(model)
        else "",
        is_kept=True,
    )


def _is_one_large_bucket(model: ModelFacts) -> bool:
    """Return whether a lower ``bucket_cap_mb`` would make more buckets, and that be of use."""
    if len(model.buckets) != 1 or model.is_sharded or model.is_hidden or not model.has_wire:
        return False
    (only,) = model.buckets
    can_split = only.largest is not None and only.largest[1] < 0.8
    return can_split and only.gradient_bytes >= WORTH_TWO


_PARTS = (
    ("straggler wait", ("wait",)),
    ("transfer", ("transfer",)),
    ("computing of the hook", _CODEC),
    ("waiting in the queue or for a turn", ("queue", "serialization_wait")),
    ("in the hook's call and future, where nobody sees more", ("hook", "future_wait")),
)
"""What sentences call kinds of exposed time."""

LEAST_SHARE = 0.001
"""Of the exposed time, from which on a kind of it is told."""


def _what_is_exposed(model: ModelFacts) -> Iterator[str]:
    """Yield which shares of the exposed time are what, in the mean of ranks and steps."""
    found, total = model.exposed_kinds, sum(model.exposed_kinds.values())
    if not total:
        return
    shares = [(sum(found.get(kind, 0.0) for kind in of) / total, what) for what, of in _PARTS]
    if model.split_unknown is not None:
        what = "on the wire, of which it is not known what is waiting"
        shares[:2] = [(shares[0][0] + shares[1][0], what)]
    shares.sort(reverse=True)
    said = [f"{percent(share)} {what}" for share, what in shares if share >= LEAST_SHARE]
    if said:
        yield f"of what is exposed, in the mean: {', '.join(said)}"


def _largest_parts(model: ModelFacts, leaves: str) -> Iterator[str]:
    kinds: dict[str, float] = {}
    for bucket in model.buckets:
        if bucket.unit is not None and bucket.exposed is not None:
            ns = bucket.exposed.p50 * bucket.share_of_steps
            kinds[bucket.unit.kind] = kinds.get(bucket.unit.kind, 0.0) + ns
    if kinds:
        by_kind = sorted(kinds.items(), key=lambda item: -item[1])
        yield "by kind, sums of medians: " + ", ".join(f"{ms(ns)} {kind}" for kind, ns in by_kind)
    tails = sorted(((b.exposed_share or 0.0, b) for b in model.buckets), key=lambda pair: -pair[0])
    parts = [
        f"{percent(share)} {b.title}{' (the last)' if b.is_last and b.unit is None else ''}"
        for share, b in tails[:4]
        if share >= 0.05
    ]
    if parts:
        yield f"{leaves}: {', '.join(parts)}"


def last_bucket_is_large(model: ModelFacts) -> Iterator[Finding]:
    """Gain: the smaller of what the last bucket adds to the exposed time and its transfer's excess.

    What it adds is its share of the median exposed time; the excess is its transfer time
    less that of the quickest bucket that sends at most half as much: it is large beside that one.
    Where a rank's file is missing, nobody knows what of a transfer is waiting for that rank.
    """
    last, exposed = model.last, model.exposed
    if last is None or exposed is None or model.is_hidden or not model.has_wire:
        return
    share, transfer = last.exposed_share or 0.0, last.transfer_ns
    smaller = [b for b in model.buckets if b.transfer_ns and _sent(b) <= _sent(last) / 2]
    if transfer is None or share < 0.25 or not smaller:
        return
    quickest = min(smaller, key=lambda b: b.transfer_ns or 0.0)
    adds, excess = share * exposed.p50, transfer - (quickest.transfer_ns or 0.0)
    if excess < 0.25 * transfer:
        return
    contents = "it holds the parameters that the forward pass uses first"
    fix = "Lower bucket_cap_mb, so that less is left for the last bucket."
    lossy = "Or send it in 16 bits."
    if last.largest is not None:
        name, largest = last.largest
        contents = f"{percent(largest)} of it is {name}"
        if largest > 0.8:
            fix = f"DDP splits no parameter: bucket_cap_mb cannot make {name} smaller."
            lossy = "Send this bucket in fewer bytes, or freeze, tie or factor the parameter."
    yield Finding(
        sentence=f"Bucket {last.bucket}, the last, is too large to hide: its "
        f"{mb(last.gradient_bytes)} are ready last, and then take {ms(transfer)} on the wire.",
        bucket=last.bucket,
        gain_ns=min(adds, excess),
        evidence=(
            f"it adds {milliseconds(adds)} of the {ms(exposed.p50)} that are exposed "
            f"({percent(share)})",
            f"bucket {quickest.bucket}, of {mb(quickest.gradient_bytes)}, takes "
            f"{ms(quickest.transfer_ns)}",
            contents,
        ),
        fix=fix,
        lossy_fix=lossy,
    )


def _sent(bucket: BucketFacts) -> float:
    return bucket.wire_bytes or bucket.gradient_bytes


def small_buckets(model: ModelFacts) -> Iterator[Finding]:
    """Gain: the latency of the buckets that could go, at most the exposed time.

    The transfer times are fitted by latency + bytes x time per byte (least squares, accepted from
    R^2 = 0.8 on).  Buckets in which latency is a fifth of the time have 4 x latency / time per
    byte; the gain is the latency times the number of buckets that are then not needed.
    """
    points = [
        (b.wire_bytes, b.transfer_ns) for b in model.buckets if b.wire_bytes and b.transfer_ns
    ]
    if len(points) < 4 or model.exposed is None or not model.has_wire:
        return
    sizes, times = np.array(points, dtype=np.float64).T
    if sizes.max() < 2 * sizes.min():
        return
    per_byte, latency = np.polyfit(sizes, times, 1)
    off, spread = times - latency - per_byte * sizes, times - times.mean()
    fit = 1 - float(off @ off) / float(spread @ spread) if spread.any() else 0.0
    if latency <= 0 or per_byte <= 0 or fit < 0.8:
        return
    share, enough = latency * len(points) / float(times.sum()), 4 * latency / per_byte
    needed = max(1, ceil(float(sizes.sum()) / enough))
    if share < 0.4 or needed >= len(points):
        return
    cap = enough * model.gradient_bytes / float(sizes.sum())
    yield Finding(
        sentence=f"The {len(points)} buckets are too small: {percent(share)} of their time on the "
        f"wire is latency, {ms(latency)} each.",
        gain_ns=min(model.exposed.p50, latency * (len(points) - needed)),
        evidence=(
            f"over the buckets a transfer takes {ms(latency)} and {ms(per_byte * 1e6)} for each MB "
            f"sent (fit, R² {fit:.2f})",
            f"{needed} would do: from {mb(enough)} sent on, latency is a fifth or less",
        ),
        fix=f"Raise bucket_cap_mb to about {cap / 2**20:.0f}.",
    )


def hook_sends_what_it_gets(model: ModelFacts) -> Iterator[Finding]:
    """Gain: half of all transfers, at most the exposed time but half of the last bucket's transfer.

    For 32-bit gradients: half as many bytes take half the time at best, and the last bucket cannot
    start before backward ends.  What it waits for other ranks stays, and where most of a transfer
    is latency (``small_buckets``) bytes are not what it takes.
    """
    given, last = model.gradient_bytes, model.last
    least, sent = model.least_wire_bytes or 0.0, model.wire_bytes or 0.0
    if not (given <= 1.02 * min(sent, least) and sent <= 2 * given):
        return
    known = [b.transfer_ns for b in model.buckets if b.transfer_ns is not None]
    if len(known) < len(model.buckets) or not model.has_wire or not model.is_32_bit:
        return
    are_small = sent < LATENCY * len(model.buckets) or any(small_buckets(model))
    if last is None or model.exposed is None or model.is_hidden or are_small:
        return
    half, net = (last.transfer_ns or 0.0) / 2, model.net_exposed_ns or 0.0
    waits = model.last_wait_ns or 0.0
    yield Finding(
        sentence=f"{model.hook} sends all {mb(given)} in 32 bits; a 16-bit hook would halve the "
        f"{ms(sum(known))} of transfers.",
        gain_ns=min(max(0.0, net - half), sum(known) / 2),
        evidence=(
            f"{ms(model.exposed.p50)} are exposed, and the last bucket's transfer would still take "
            f"{ms(half)} of them"
            + (f", and its wait for other ranks {ms(waits)}" if waits > 0 else ""),
            "what the cast costs on this machine is not in it",
        ),
        lossy_fix="Try bf16_compress_hook or fp16_compress_hook, and look at the error."
        if model.hook in AVERAGES
        else "Try it inside bf16_compress_wrapper, and look at the error.",
    )


def saves_less_than_it_costs(model: ModelFacts) -> Iterator[Finding]:
    """Gain: compress and decompress time less the wire time saved, sums of the buckets' medians.

    Saved is the transfer time times (gradient bytes / wire bytes - 1): as if it were proportional
    to the bytes, which is in favour of compression, since a latency is not saved.  What of
    ``hook_then_optimizer`` is the optimizer's, and what of a transfer is waiting for a rank without
    a file, nobody knows.
    """
    moved = [
        (b.transfer_ns * b.share_of_steps, b.gradient_bytes / b.wire_bytes)
        for b in model.buckets
        if b.wire_bytes and b.transfer_ns is not None
    ]
    if _STEPS in model.hook or not model.has_wire or len(moved) < len(model.buckets):
        return
    codec, spent = codec_ns(model), sum(ns for ns, _ in moved)
    saved = sum(ns * max(0.0, ratio - 1) for ns, ratio in moved)
    if not model.wire_bytes or model.gradient_bytes < 1.05 * model.wire_bytes or codec <= saved:
        return
    yield Finding(
        sentence=f"{model.hook} costs more than it saves: {ms(codec)} a step to compress and "
        f"decompress, for at most {ms(saved)} less on the wire.",
        gain_ns=codec - saved,
        evidence=(
            f"it sends {mb(model.wire_bytes)} of {mb(model.gradient_bytes)}, in {ms(spent)}",
            "taken as proportional to the bytes, which is in favour of compression",
        ),
        fix="On this network send the gradients as they are, or by a cheaper cast (bf16, fp16)."
        if not model.is_sharded
        else "On this network leave the hook out, or use a cheaper cast (bf16, fp16).",
    )


def codec_ns(model: ModelFacts) -> float:
    """Return what compress and decompress take in a step, ns."""
    return sum(b.stages.get(name, 0.0) * b.share_of_steps for b in model.buckets for name in _CODEC)


def hook_lines(model: ModelFacts) -> Iterator[tuple[str, str]]:
    """Yield the break-even bandwidth of a model's hook, bytes per second a rank.

    Saved: gradient bytes less wire bytes of a step.  Added: ``codec_ns``, all of it.  Nothing for
    a hook that saves less than 5 %, whose stages are not seen, or that holds an optimizer, and of
    one rank, which has no link.
    """
    if not model.wire_bytes or _STEPS in model.hook or (model.is_whole and not model.has_wire):
        return
    saved, codec = model.gradient_bytes - model.wire_bytes, codec_ns(model)
    if codec > 0 and saved >= _LEAST_SAVED * model.gradient_bytes:
        yield (
            "break-even",
            f"{bandwidth(saved / codec * 1e9)}: on a faster link {model.hook} costs more than it "
            f"saves ({mb(saved)} less a step, {ms(codec)} to compress and decompress)",
        )


def ranks_wait(model: ModelFacts) -> Iterator[Finding]:
    """Gain of a late rank: its mean margin to the next, at the bucket where that is largest.

    Without it all ranks would have waited for the next one instead.  Where no clock tells, it is
    what the rank that waits longest in a step waits at the last bucket, the median over steps, at
    most its exposed time.  Of a sharded model all waits of a step count, since training waits at
    one unit after another.
    """
    for late in model.late:
        yield _late_rank(model, late)
    exposed, gain = model.exposed.p50 if model.exposed else 0.0, model.exposed_wait_ns or 0.0
    if model.late or model.is_hidden or not gain or gain < 0.2 * exposed:
        return
    wait, last = ms(model.wait_ns), model.last
    if last is not None and not model.is_sharded:
        noun = "step by step"
        sentence = (
            f"of the time that bucket {last.bucket}, the last, is on the wire, {wait} go by until "
            "the last rank is in the collective too."
        )
        evidence = [
            "so long waits the rank that came first, in the median step; from then on the bucket "
            f"takes {ms(last.transfer_ns)}: that is the transfer"
        ]
    else:
        shares = [((b.wait_ns or 0.0) * b.share_of_steps, b) for b in model.buckets]
        noun, half = "collective by collective", sum(ns for ns, _ in shares) / 2
        sentence = f"in the collectives of a step {wait} go by until the last rank is in them too."
        evidence = [f"most of it at {bucket.title}" for ns, bucket in shares if ns > half]
    nobody = why_nobody(is_order_known=model.is_order_known, is_sharded=model.is_sharded)
    yield Finding(
        sentence=f"Ranks wait for each other: {sentence}",
        gain_ns=gain,
        evidence=(*evidence, f"no rank is named: {nobody}"),
        fix=f"{_IN_TRACE} who comes last, {noun}.",
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
    if late.since is None:
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
    cause = "mostly in communication"
    fix = f"{_IN_TRACE} which {model.noun} is slow in them."
    if share is None:
        cause, fix = "in what is not known", "Look at what else the machine does in these steps."
    elif share <= 0.5:
        cause, late = "mostly outside of communication", None
        fix = (
            "Look at data loading, evaluation, checkpoints, gradients that are accumulated, "
            f"{''.join(f'{name}, ' for name in model.beside)}and what else the machine does."
        )
    elif not model.is_whole:
        fix = "Whether they wait for a rank without a file is not known: look at those first."
    elif late is not None:
        cause = f"mostly waiting for rank {late}"
        fix = (
            f"Look at what rank {late} does then: a checkpoint, an evaluation, data loading, "
            "another job on its machine."
        )
    exposed = "an unknown part" if share is None else percent(share)
    take, noun = ("takes", "step") if len(slow.steps) == 1 else ("take", "steps")
    yield Finding(
        sentence=f"{len(slow.steps)} of {slow.periods} steps {take} {SLOW:g} times the median or "
        f"more: that costs {ms(slow.excess_ns)} a step, {cause}.",
        steps=slow.steps,
        gain_ns=slow.excess_ns,
        evidence=(
            f"the slowest takes {ms(slow.slowest_ns)}; {noun} {listed(slow.steps, most=6)}",
            f"of the excess {exposed} is exposed communication, at the median rank",
        ),
        rank=late,
        fix=fix,
    )


def error_is_large(model: ModelFacts) -> Iterator[Finding]:
    """No gain: an error costs no time.  Named from a median relative L2 error of 0.1 on.

    What a local hook gives is not meant to be the average: it loses nothing.
    """
    found = [(b.error, b) for b in model.buckets if b.error and not b.error.by_design]
    bad = [(error, b) for error, b in found if error.p50 >= LARGE_ERROR]
    if not bad:
        return
    error, bucket = max(bad, key=lambda one: one[0].p50)
    what = "the lossless average"
    whose, noun = f"bucket {bucket.bucket}'s gradients", "buckets"
    if bucket.unit is not None:
        is_gather = bucket.unit.collective == "all_gather"
        whose = f"the {'parameters' if is_gather else 'gradients'} of {bucket.title}"
        what, noun = "FSDP's own result" if is_gather else what, "collectives"
    evidence = [
        f"median of {error.count} sampled checks against {what}; the largest was {error.most:.3g}",
        f"{len(bad)} of {len(found)} sampled {noun} have a relative error above {LARGE_ERROR}",
    ]
    if error.worst is not None:
        evidence.append(f"the worst parameter is {error.worst}")
    if error.has_feedback:
        evidence.append("error feedback sends what was lost with the next steps")
    size = f"{error.p50:.3g} (vNMSE {vnmse(error.p50):.2g})"
    cosine = "" if error.cosine is None else f", cosine {error.cosine:.2g}"
    yield Finding(
        sentence=f"What {model.hook} makes of {whose} has relative error {size}{cosine}.",
        bucket=bucket.bucket,
        evidence=tuple(evidence),
        fix=_against(model, error),
    )


def _against(model: ModelFacts, error: BucketError) -> str:
    if error.has_feedback:
        return ""
    if (error.cosine or 0.0) >= _SAME_WAY:
        return "The result points the same way, so its scale is wrong; hooktrace check tells more."
    if "fp16" in model.hook.lower():
        return (
            "Gradients below 6e-5 are rounded coarsely in float16, and those below 6e-8 to zero: "
            "scale the loss, or send bfloat16."
        )
    return "Compare the loss with an uncompressed run, or compress less."
