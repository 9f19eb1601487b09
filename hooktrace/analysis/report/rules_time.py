"""Rules about where a step's communication time goes.

Each takes the facts of a model and yields its findings; the docstrings give the arithmetic.  Those
of a sharded model speak of units, for which training waits one after another; all others are DDP's,
whose buckets are sent while backward computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import numpy as np

from ...records.units import mb, milliseconds, ms, percent
from .facts import BucketFacts, Finding, ModelFacts

WORTH_TWO = 2 << 20
"""Bytes of gradients from which on they are worth more than one bucket."""


def communication_is_exposed(model: ModelFacts) -> Iterator[Finding]:
    """Gain: the median exposed time, all that any other hook, sharding or network could give.

    A faster network cannot give more: what is not exposed overlaps with computing.
    """
    if model.exposed is None or model.exposed_share is None or model.period is None:
        if model.is_sharded:
            yield _unknown(model)
        return
    share, exposed = percent(model.exposed_share), ms(model.exposed.p50)
    part = f"{milliseconds(model.exposed.p50)} of {ms(model.period.p50)}"
    sentence, hidden = (
        f"Exposed communication is {share} of the step: {part} go by when backward has nothing "
        "left to compute.", f"{share} of the step is exposed",
    )  # fmt: skip
    what, beside, leaves = "buckets", "the backward pass", "what backward leaves over"
    if model.is_sharded:
        hidden = f"training waits for its collectives for {share} of the step"
        sentence = f"{hidden[:1].upper()}{hidden[1:]}: {part}."
        what, beside, leaves = "collectives", "computing", "the largest parts"
    if model.is_hidden:
        sentence = (
            f"Communication is hidden: {hidden}, so a faster network or hook makes it {exposed} "
            "shorter at most."
        )
    if model.wire_bytes == 0:
        sentence = f"Nothing is communicated: {model.hook} sends nothing."
    checked = f"; {model.checked} sampled steps are not among them" if model.checked else ""
    kinds = model.several_kinds
    if not model.are_alike:
        kinds = "steps are of several kinds: not all have the same collectives; medians are of all"
    only = model.last if len(model.buckets) == 1 else None
    can_split = only is not None and only.largest is not None and only.largest[1] < 0.8
    is_large = only is not None and only.gradient_bytes >= WORTH_TWO
    is_one = can_split and is_large and model.has_wire and not model.is_hidden
    yield Finding(
        sentence=sentence,
        gain_ns=model.exposed.p50,
        evidence=(
            f"that is the {model.median_step}, of {model.steps} steps on {model.on_ranks}; 95 % "
            f"of them are below {ms(model.exposed.p95)}{checked}",
            f"{what} are in flight for {ms(model.communication_ns)} of the step, "
            f"{percent(model.overlap)} of it overlapped with {beside}",
            *what_is_exposed(model),
            *([kinds] if kinds else []),
            *_largest_parts(model, leaves),
        ),
        fix="Lower bucket_cap_mb: all is in one bucket, which is ready when backward ends."
        if is_one and not model.is_sharded
        else "",
        is_kept=True,
    )


def _unknown(model: ModelFacts) -> Finding:
    busy = (
        f", which are in flight for {ms(model.communication_ns)} of each step"
        if model.communication_ns
        else ""
    )
    return Finding(
        sentence="How long training waits for its collectives is not known: where the computing "
        f"stream came to wait was not seen for all of them{busy}.",
        fix="See in the log, and in docs/fsdp.md under Exposed, which are not seen.",
        is_kept=True,
    )


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


_PARTS = (
    ("straggler wait", ("wait",)),
    ("transfer", ("transfer",)),
    ("computing of the hook", ("compress", "decompress")),
    ("waiting in the queue or for a turn", ("queue", "serialization_wait")),
    ("in the hook's call and future, where nobody sees more", ("hook", "future_wait")),
)
"""What sentences call kinds of exposed time."""

LEAST_SHARE = 0.001
"""Of the exposed time, from which on a kind of it is told."""


def what_is_exposed(model: ModelFacts) -> Iterator[str]:
    """Yield which shares of the exposed time are what, in the mean of ranks and steps."""
    found, total = model.exposed_kinds, sum(model.exposed_kinds.values())
    if not total:
        return
    shares = [(sum(found.get(kind, 0.0) for kind in of) / total, what) for what, of in _PARTS]
    if model.split_unknown is not None:
        nobody = "it is not known" if model.wait_unknown is None else "nobody knows"
        what = "" if model.is_alone else f", of which {nobody} what is waiting"
        shares[:2] = [(shares[0][0] + shares[1][0], f"on the wire{what}")]
    shares.sort(reverse=True)
    said = [f"{percent(share)} {what}" for share, what in shares if share >= LEAST_SHARE]
    yield f"of what is exposed, in the mean: {', '.join(said)}"


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
