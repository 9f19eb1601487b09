"""From which bandwidth on a compressing hook stops paying.

    break-even bandwidth = bytes that a step saves / time that compress and decompress add to it

On a faster link those bytes would take less time than they cost.  It holds where transfers and
codec are both on the critical path; where part of either is hidden, the real limit is elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...records.units import bandwidth, mb, ms
from .facts import ModelFacts

_CODEC = ("compress", "decompress")
_STEPS = "hook_then_optimizer"
"""A hook whose decompress holds the optimizer's step."""

_LEAST_SAVED = 0.05
"""Share of a step's bytes below which nothing is called saved."""


def codec_ns(model: ModelFacts) -> float:
    """Return what compress and decompress take in a step, ns; of an optimizer's hook the first."""
    names = _CODEC[:1] if _STEPS in model.hook else _CODEC
    return sum(b.stages.get(name, 0.0) * b.share_of_steps for b in model.buckets for name in names)


def break_even(saved_bytes: float | None, added_ns: float | None) -> float | None:
    """Return the bandwidth, bytes per second; ``None`` where nothing is saved, or nothing added."""
    if not saved_bytes or not added_ns or saved_bytes < 0 or added_ns < 0:
        return None
    return saved_bytes / added_ns * 1e9


def pays_below(model: ModelFacts) -> float | None:
    """Return the break-even bandwidth of a model's hook, bytes per second a rank.

    Saved: gradient bytes less wire bytes of a step.  Added: ``codec_ns``, all of it.  ``None`` for
    a hook that saves less than 5 %, whose stages are not seen, or that holds an optimizer.
    """
    if not model.wire_bytes or _STEPS in model.hook:
        return None
    saved = model.gradient_bytes - model.wire_bytes
    if saved < _LEAST_SAVED * model.gradient_bytes:
        return None
    return break_even(saved, codec_ns(model))


def hook_lines(model: ModelFacts) -> Iterator[tuple[str, str]]:
    """Yield names and texts of what a model's hook is worth."""
    limit = pays_below(model)
    if limit is not None and model.wire_bytes:
        saved = mb(model.gradient_bytes - model.wire_bytes)
        yield (
            "break-even",
            f"{bandwidth(limit)}: on a faster link {model.hook} costs more than it saves ({saved} "
            f"less a step, {ms(codec_ns(model))} to compress and decompress)",
        )
