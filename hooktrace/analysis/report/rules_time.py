"""Rules about where a step's communication time goes.

Each takes the facts of a model and yields its findings; the docstrings give the arithmetic.

Transfers that take long stand beside others as large, or down to half as large: so a latency is in
their times too, and counts for more there.  None is slow for being the smaller one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import ceil
from typing import NamedTuple

import numpy as np

from ...records import RunInfo
from ...records.hook_names import AVERAGES, how_to_see
from ...records.units import mb, milliseconds, ms, percent, size
from ..run.dense import Spread
from .facts import IN_TRACE, OFTEN_SENT, BucketFacts, Finding, ModelFacts

HIDDEN = 0.02
"""Exposed share of the step below which communication counts as hidden."""

WORTH_TWO = 2 << 20
"""Bytes of gradients from which on they are worth more than one bucket."""


def communication_is_exposed(model: ModelFacts, run: RunInfo | None) -> Iterator[Finding]:
    """Gain: the median exposed time, all that any other hook or network could give.

    A faster network cannot give more: what is not exposed overlaps with the backward pass.
    """
    exposed, share = model.exposed, model.exposed_share
    if exposed is None or model.period is None or share is None:
        return
    evidence = [
        median_of(model, exposed),
        f"buckets are under way for {ms(model.busy_ns)} of the step, {percent(model.overlap)} of "
        "it overlapped with the backward pass",
        *what_is_exposed(model),
    ]
    if model.wire_bytes and (model.least_wire_bytes or 0) < 0.9 * model.wire_bytes:
        evidence.append(
            f"steps are of several kinds: they send {mb(model.wire_bytes)} at the median, and "
            f"{mb(model.least_wire_bytes)} at the least; all medians are over both"
        )
    elif model.wire_bytes and (model.often_wire_bytes or 0) > 1.1 * model.wire_bytes:
        evidence.append(
            f"steps are of several kinds: they send {mb(model.wire_bytes)} at the median, and "
            f"{mb(model.often_wire_bytes)} or more in at least {percent(OFTEN_SENT)} of them; all "
            "medians are over both"
        )
    tails = sorted(((b.tail_share or 0.0, b) for b in model.buckets), key=lambda pair: -pair[0])
    parts = ", ".join(
        f"{percent(share)} {b.title}{' (the last)' if b.is_last else ''}"
        for share, b in tails[:4]
        if share >= 0.05
    )
    if parts:
        evidence.append(f"what backward leaves over: {parts}")
    if model.wire_bytes == 0:
        sentence = f"Nothing is communicated: {model.hook} sends nothing."
    elif share < HIDDEN:
        sentence = (
            f"Communication is hidden: {percent(share)} of the step is exposed, so a faster "
            f"network or hook makes it {ms(exposed.p50)} shorter at most."
        )
    else:
        sentence = (
            f"Exposed communication is {percent(share)} of the step: "
            f"{milliseconds(exposed.p50)} of {ms(model.period.p50)} go by when backward has "
            "nothing left to compute."
        )
    only = model.last if len(model.buckets) == 1 and share >= HIDDEN and model.has_wire else None
    remedy = ""
    can_split = only is not None and only.largest is not None and only.largest[1] < 0.8
    if only is not None and can_split and only.gradient_bytes >= WORTH_TWO:
        remedy = "Lower bucket_cap_mb: all is in one bucket, which is ready when backward ends."
    yield Finding(
        sentence=sentence,
        gain_ns=exposed.p50,
        evidence=tuple(evidence),
        remedy=remedy,
        is_kept=True,
    )


def median_of(model: ModelFacts, exposed: Spread) -> str:
    """Return what the exposed time is the median of, as evidence says it."""
    probed = f"; {model.probed} probed steps are not among them" if model.probed else ""
    ranks = "1 rank" if len(model.ranks) == 1 else f"{len(model.ranks)} ranks"
    return (
        f"median of {model.steps} steps on {ranks}; 95 % of them are below "
        f"{ms(exposed.p95)}{probed}"
    )


_PARTS = (
    ("waiting for a rank that comes later", ("wait",)),
    ("transfer", ("transfer",)),
    ("computing of the hook", ("compress", "decompress")),
    ("waiting in the queue or for a turn", ("queue", "turn")),
    ("in the hook's call and future, where nobody sees more", ("hook", "pending")),
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
    if model.wait_unknown is not None:
        what = "" if model.is_alone else ", of which nobody knows what is waiting"
        shares[1] = shares[1][0], f"on the wire{what}"
    said = [
        f"{percent(share)} {what}"
        for share, what in sorted(shares, reverse=True)
        if share >= LEAST_SHARE
    ]
    yield f"of what is exposed, in the mean: {', '.join(said)}"


def last_bucket_is_large(model: ModelFacts, run: RunInfo | None) -> Iterator[Finding]:
    """Gain: the smaller of what the last bucket adds to the exposed time and its transfer's excess.

    What it adds is its share of the median exposed time; the excess is its transfer time
    less that of the quickest bucket that sends at most half as much: it is large beside that one.
    Where a rank's file is missing, nobody knows what of a transfer is waiting for that rank.
    """
    last = model.last
    if last is None or model.exposed is None or (model.exposed_share or 0) < HIDDEN:
        return
    if last.transfer_ns is None or last.tail_share is None or not model.has_wire:
        return
    if last.tail_share < 0.25:
        return
    smaller = [b for b in model.buckets if b.transfer_ns and _sent(b) <= _sent(last) / 2]
    if not smaller:
        return
    quickest = min(smaller, key=lambda b: b.transfer_ns or 0.0)
    adds = last.tail_share * model.exposed.p50
    excess = last.transfer_ns - (quickest.transfer_ns or 0.0)
    if excess < 0.25 * last.transfer_ns:
        return
    remedy = "Lower bucket_cap_mb, so that less is left for the last bucket."
    lossy = "Or send it in 16 bits."
    contents = "it holds the parameters that the forward pass uses first"
    if last.largest is not None:
        contents = f"{percent(last.largest[1])} of it is {last.largest[0]}"
    if last.largest is not None and last.largest[1] > 0.8:
        remedy = f"DDP splits no parameter: bucket_cap_mb cannot make {last.largest[0]} smaller."
        lossy = "Send this bucket in fewer bytes, or freeze, tie or factor the parameter."
    yield Finding(
        sentence=f"Bucket {last.bucket}, the last, is too large to hide: its "
        f"{mb(last.gradient_bytes)} are ready last, and then take "
        f"{ms(last.transfer_ns)} on the wire.",
        bucket=last.bucket,
        gain_ns=min(adds, excess),
        evidence=(
            f"it adds {milliseconds(adds)} of the {ms(model.exposed.p50)} that are exposed "
            f"({percent(last.tail_share)})",
            f"bucket {quickest.bucket}, of {mb(quickest.gradient_bytes)}, takes "
            f"{ms(quickest.transfer_ns)}",
            contents,
        ),
        remedy=remedy,
        lossy_remedy=lossy,
    )


def _sent(bucket: BucketFacts) -> float:
    return bucket.wire_bytes or bucket.gradient_bytes


def small_buckets(model: ModelFacts, run: RunInfo | None) -> Iterator[Finding]:
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
    sizes, times = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True))
    if sizes.max() < 2 * sizes.min():
        return
    per_byte, latency = np.polyfit(sizes, times, 1)
    spread = float(((times - times.mean()) ** 2).sum())
    fit = 1 - float(((times - latency - per_byte * sizes) ** 2).sum()) / spread if spread else 0.0
    if latency <= 0 or per_byte <= 0 or fit < 0.8:
        return
    share = latency * len(points) / float(times.sum())
    enough = 4 * latency / per_byte
    needed = max(1, ceil(float(sizes.sum()) / enough))
    if share < 0.4 or needed >= len(points):
        return
    ratio = model.gradient_bytes / float(sizes.sum())
    yield Finding(
        sentence=f"The {len(points)} buckets are too small: {percent(share)} of their time on the "
        f"wire is latency, {ms(latency)} each.",
        gain_ns=min(model.exposed.p50, latency * (len(points) - needed)),
        evidence=(
            f"over the buckets a transfer takes {ms(latency)} and {ms(per_byte * 1e6)} for each MB "
            f"sent (fit, R² {fit:.2f})",
            f"{needed} would do: from {mb(enough)} sent on, latency is a fifth or less",
        ),
        remedy=f"Raise bucket_cap_mb to about {enough * ratio / 2**20:.0f}.",
    )


def workers_are_busy(model: ModelFacts, run: RunInfo | None) -> Iterator[Finding]:
    """Gain: the median, over ranks and steps, of min(exposed, queue of the bucket done last).

    Time in the queue costs nothing where it is hidden; what ends the step has waited for it.  The
    wait for a turn among calls of several rounds is none.

    Not of device times: a communicator runs its collectives one after another, so that each one's
    queue is the wire of those before it.  The gain would be the exposed time, less the last one.
    """
    gain = model.queued_ns
    if not gain or (model.exposed_share or 0) < HIDDEN or model.clock != "host":
        return
    worst = max(model.buckets, key=lambda b: b.stages.get("queue", 0.0))
    is_gloo = run is not None and "gloo" in run.backend
    yield Finding(
        sentence=f"Collectives queue behind each other: the one that ends the step waits "
        f"{ms(gain)} for those before it.",
        gain_ns=gain,
        evidence=(
            f"bucket {worst.bucket} waits longest, {ms(worst.stages.get('queue'))} at the median",
            "derived from the stamps: the backend takes collectives first in, first out"
            + (", 2 at a time on gloo" if is_gloo else ""),
        ),
        remedy=_if_late(model, gain, "a worker" if is_gloo else "up the next ones")
        or "Send fewer bytes, or fewer and larger buckets if they are small.",
    )


def _if_late(model: ModelFacts, gain: float, held: str) -> str:
    """Return a remedy where a bucket that waits for a rank may hold up others by all that.

    A bucket's wait is a mean over ranks, of which the late one waits for nobody.
    """
    late = max(model.late, key=lambda one: one.margin_ns, default=None)
    if late is not None and late.margin_ns >= gain:
        return (
            f"Look at rank {late.rank} first, which is late: collectives that wait for it may hold "
            f"{held} on the other ranks."
        )
    waiting = max(model.buckets, key=lambda b: b.wait_ns or 0.0)
    if (waiting.wait_ns or 0.0) < gain:
        return ""
    return (
        f"Look at who comes late first: bucket {waiting.bucket} holds {held} for "
        f"{ms(waiting.wait_ns)} until the last rank is there."
    )


def bucket_is_slow(model: ModelFacts, run: RunInfo | None) -> Iterator[Finding]:
    """Gain: what the bucket adds to the exposed time, at most its transfer's excess.

    A bucket is slow when it takes more than twice what it would at the median rate of three others
    or more that are as large, or down to half as large; the excess is what it takes beyond
    (``slow_transfers``).  Where a rank's file is missing, it may be that rank that it waits for.
    """
    if not model.has_wire:
        return
    for one in slow_transfers(model.buckets, lambda _, __: True):
        if model.exposed is None or one.of.tail_share is None:
            return
        adds = one.of.tail_share * model.exposed.p50
        yield Finding(
            sentence=f"Bucket {one.of.bucket} takes long on the wire: {ms(one.took_ns)} for "
            f"{size(int(one.sent))}, where others, no larger, would take {ms(one.usual_ns)}.",
            bucket=one.of.bucket,
            gain_ns=min(adds, one.excess_ns),
            evidence=(f"beside {one.others} others", f"it adds {ms(adds)} to what is exposed"),
            remedy=f"{IN_TRACE} what else is on the wire, or computes, while it is.",
        )


def _unlike_calls(model: ModelFacts) -> Iterator[str]:
    """Yield on which ranks the hook's calls take how long, where they differ."""
    calls = sorted((r.call_ns, r.rank) for r in model.ranks if r.call_ns is not None)
    if calls and calls[-1][0] > 2 * calls[0][0]:
        least, most = calls[0], calls[-1]
        yield f"from {ms(least[0])} on rank {least[1]} to {ms(most[0])} on rank {most[1]}"


def hook_holds_the_thread(model: ModelFacts, run: RunInfo | None) -> Iterator[Finding]:
    """Gain: the sum over buckets, but for the last, of the median time that the hook's call takes.

    The call runs on the thread that computes the gradients; on a device it only enqueues, and this
    is not said.  The last bucket's call comes after all gradients: it is in the exposed time.  What
    an opaque hook does in it is not known.
    """
    calls = [(b.call_ns, b) for b in model.buckets if b.call_ns and not b.is_last]
    if model.clock != "host" or not calls or model.period is None:
        return
    total = sum(ns for ns, _ in calls)
    if total < 0.03 * model.period.p50:
        return
    most, worst = max(calls, key=lambda pair: pair[0])
    compress = sum(min(ns, b.stages.get("compress", 0.0)) for ns, b in calls)
    what = (
        f"at most {ms(compress)} of it is compress; the rest is launching, waiting in the hook's "
        "own code, or decompress of what is there at once"
    )
    remedy = "See in Comm Timeline what the longest call waits for."
    if "hook" in worst.stages:
        what = "what it does in them is not seen, as the hook is opaque: compressing, or waiting"
        remedy = f"To see it, {how_to_see(model.hook)}."
    elif compress > total / 2 and model.hook not in AVERAGES:
        remedy = "Compress with fewer passes over the bucket, or compress less."
    yield Finding(
        sentence=f"The hook's own calls hold up the backward pass for {ms(total)} of each step.",
        gain_ns=total,
        evidence=(what, f"bucket {worst.bucket} takes longest, {ms(most)}", *_unlike_calls(model)),
        remedy=remedy,
    )


_ENOUGH = 3
"""Others beside which one may be slow."""


class SlowTransfer(NamedTuple):
    """One that takes twice as long as at the others' median rate, or longer; times in ns."""

    of: BucketFacts
    sent: float
    took_ns: float
    usual_ns: float
    others: int

    @property
    def excess_ns(self) -> float:
        """What it takes beyond."""
        return self.took_ns - self.usual_ns


def slow_transfers(
    buckets: Iterable[BucketFacts], are_alike: Callable[[BucketFacts, BucketFacts], bool]
) -> Iterator[SlowTransfer]:
    """Yield the slow ones; ``are_alike``: whether one may stand beside another."""
    moved = [(b, b.wire_bytes, b.transfer_ns) for b in buckets if b.wire_bytes and b.transfer_ns]
    for one, sent, took in moved:
        ns_a_byte = [
            ns / count
            for b, count, ns in moved
            if b is not one and are_alike(b, one) and 0.5 <= count / sent <= 1.05
        ]
        if len(ns_a_byte) < _ENOUGH:
            continue
        usual = sent * float(np.median(ns_a_byte))
        if took > 2 * usual:
            yield SlowTransfer(one, sent, took, usual, len(ns_a_byte))
