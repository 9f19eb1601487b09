"""Rules about compression: what it costs, what it saves, what it loses, and when it stops paying.

    break-even bandwidth = bytes that a step saves / time that compress and decompress add to it

On a faster link those bytes would take less time than they cost.  It holds where transfers and
codec are both on the critical path; where part of either is hidden, the real limit is elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...records.hook_names import AVERAGES
from ...records.units import bandwidth, mb, ms
from ..run.parts import break_even
from .facts import BucketError, BucketFacts, Finding, ModelFacts
from .rules_time import small_buckets

_CODEC = ("compress", "decompress")
_STEPS = "hook_then_optimizer"
"""A hook whose decompress holds the optimizer's step."""

_LEAST_SAVED = 0.05
"""Share of a step's bytes below which nothing is called saved."""


def codec_ns(model: ModelFacts) -> float:
    """Return what compress and decompress take in a step, ns; of an optimizer's hook the first."""
    names = _CODEC[:1] if _STEPS in model.hook else _CODEC
    return sum(b.stages.get(name, 0.0) * b.share_of_steps for b in model.buckets for name in names)


def hook_lines(model: ModelFacts) -> Iterator[tuple[str, str]]:
    """Yield the break-even bandwidth of a model's hook, bytes per second a rank.

    Saved: gradient bytes less wire bytes of a step.  Added: ``codec_ns``, all of it.  Nothing for
    a hook that saves less than 5 %, whose stages are not seen, or that holds an optimizer, and of
    one rank, which has no link.
    """
    if not model.wire_bytes or _STEPS in model.hook or model.is_alone:
        return
    saved, codec = model.gradient_bytes - model.wire_bytes, codec_ns(model)
    limit = break_even(saved, codec)
    if limit is not None and saved >= _LEAST_SAVED * model.gradient_bytes:
        yield (
            "break-even",
            f"{bandwidth(limit)}: on a faster link {model.hook} costs more than it saves "
            f"({mb(saved)} less a step, {ms(codec)} to compress and decompress)",
        )


LARGE_ERROR = 0.1
"""Relative L2 error from which on a bucket is named; casts to 16 bits lose less than 0.005 of what
is in their range."""

_SAME_WAY = 0.999
"""Cosine from which on a large error is one of scale: what is off sideways is below 0.05."""

LATENCY = 100_000
"""Bytes below which a transfer is mostly latency, whatever the network: 10 Gbit/s take 80 us."""


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
    if len(known) < len(model.buckets) or model.is_hidden or not model.has_wire:
        return
    are_small = sent < LATENCY * len(model.buckets) or any(small_buckets(model))
    if last is None or model.exposed is None or are_small or not model.is_32_bit:
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
    cosine = "" if error.cosine is None else f", cosine {error.cosine:.2g}"
    yield Finding(
        sentence=f"What {model.hook} makes of {whose} has relative error {error.p50:.3g}{cosine}.",
        bucket=bucket.bucket,
        evidence=tuple(evidence),
        fix=_against(model, bucket, error),
    )


def _against(model: ModelFacts, bucket: BucketFacts, error: BucketError) -> str:
    """Return what to do about a large error."""
    if bucket.unit is not None and (error.cosine or 0.0) >= _SAME_WAY:
        if bucket.unit.collective == "all_gather":
            return "They point the same way, so what is wrong is their scale."
        return (
            "It points the same way, so what is wrong is its scale: a hook returns the sum over "
            "ranks / reduction.divisor. hooktrace check tells more."
        )
    if error.has_feedback:
        return ""
    if "fp16" in model.hook.lower():
        return (
            "Gradients below 6e-5 are rounded coarsely in float16, and those below 6e-8 to zero: "
            "scale the loss, or send bfloat16."
        )
    return "Compare the loss with an uncompressed run, or compress less."
