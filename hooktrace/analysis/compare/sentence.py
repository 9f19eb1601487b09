"""A comparison in one sentence, of nothing but what is shown to differ; one more on what is lost.

Comparison without its sentence --step time, parts--> "fp16 is 11 % (9 to 13) faster than ..."
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records.units import megabytes, milliseconds, ms, named_ranks, percent
from .difference import Difference

if TYPE_CHECKING:
    from .comparison import Comparison, Quantity, Unit

MINUS = "\N{MINUS SIGN}"

_LEAST_SHARE = 0.0005
"""Below, one digit after the point says nothing but 0."""


def value(of: float | None, unit: Unit) -> str:
    """Return a number without its unit: ms, MB, a share in percent."""
    if of is None:
        return "unknown"
    if unit == "ns":
        return milliseconds(of)
    if unit == "bytes":
        return megabytes(of)
    return percent(of) if unit == "share" else f"{of:.3g}"


def signed(of: float | None, unit: Unit) -> str:
    """Return a difference with its sign, none of 0."""
    if of is None:
        return "-"
    sign = MINUS if of < 0 else "+" if of > 0 else ""
    return f"{sign}{value(abs(of), unit)}"


def signed_ms(ns: float | None) -> str:
    """Return a difference in ms with its sign and unit."""
    return "unknown" if ns is None else f"{signed(ns, 'ns')} ms"


def within(found: Difference, unit: Unit) -> str:
    """Return the interval of a difference; ``-`` where none is known."""
    if found.low is None or found.high is None:
        return "-"
    if found.low == found.high:
        return "exact"
    return f"{signed(found.low, unit)} to {signed(found.high, unit)}"


def share(found: Difference, unit: Unit) -> str:
    """Return the difference as a share of the first side."""
    if found.share is None or unit == "share" or found.verdict == "unknown":
        return "-"
    return "< 0.1 %" if 0 < abs(found.share) < _LEAST_SHARE else signed(found.share, "share")


_OF_STEP = 0.1
"""Of the difference of the step time: the least that a part must be to be said."""

_MOST_PARTS = 3

_ROUNDING = 1e-6
"""Relative error of a sum of 32 bits, at most."""

_APART = 1.1
"""Times as large is another relative error."""


def sentence(found: Comparison) -> str:
    """Return the sentence, and a second one where gradients lose something, or may."""
    return _of_step(found) + _lost(found)


def _of_step(found: Comparison) -> str:
    step, (a, b) = found.quantity("period"), found.names
    if step is None or step.a is None or step.b is None:
        return f"Whether {b} is faster than {a} is unknown, because no step time of one is known."
    if step.verdict == "unknown":
        return (
            f"Whether {b} is faster than {a} is unknown, because {step.why}: {ms(step.b)} a step "
            f"against {ms(step.a)}."
        )
    among = "Between these two runs,"
    if step.verdict == "same":
        return f"{among} the step time is the same, {ms(step.a)}{_else(found)}"
    if not step.differs:
        why = f", and {step.why}" if step.why else ""
        return (
            f"{among} the step time is not shown to differ: {ms(step.b)} with {b}, "
            f"{ms(step.a)} with {a} ({signed(step.low, 'ns')} to {signed_ms(step.high)})"
            f"{why}{_else(found)}"
        )
    how = "faster" if step.apart < 0 else "slower"
    ends = sorted(abs(x or 0.0) for x in (step.share_low, step.share_high))
    low, high = (percent(x).removesuffix(" %") for x in ends)
    return (
        f"{among} {b} is {percent(abs(step.share or 0.0))} ({low} to {high}) {how} than {a}"
        f"{_caveats(found, step)}{_parts(found, step)}{_unlike(found)}."
    )


def _caveats(found: Comparison, step: Difference) -> str:
    """Return what makes the step time's difference less than it seems."""
    mean, compute, whole = found.quantity("period_mean"), found.part("compute"), found.step
    said = ""
    if mean is not None and not (mean.differs and mean.apart * step.apart > 0):
        said = " by the median step, not by the mean"
    if compute is not None and compute.differs and whole is not None and whole.apart:
        is_outside = compute.apart / whole.apart >= 1 / 2
        said += ", though mostly where a hook does nothing" if is_outside else ""
    return said


def _parts(found: Comparison, step: Difference) -> str:
    if not found.parts:
        return ""
    least = _OF_STEP * abs(step.apart)
    parts = [p for p in found.parts if p.difference.differs and abs(p.difference.apart) >= least]
    parts.sort(key=lambda p: -abs(p.difference.apart))
    if not parts:
        return "; no stage is shown to account for it"
    said = (f"{signed_ms(p.difference.apart)} {_title(found, p)}" for p in parts[:_MOST_PARTS])
    return ": " + ", ".join(said)


def _title(found: Comparison, part: Quantity) -> str:
    of_second = part.difference.apart > 0
    late_in_a, late_in_b = ({one.rank for one in run.late} for run in (found.a, found.b))
    late = late_in_b if of_second else late_in_a
    if part.key == "wait" and late:
        where = "both" if late_in_a == late_in_b else found.names[of_second]
        return f"of waiting for {named_ranks(late)}, late in {where}"
    return part.title if part.key == "compute" else f"of {part.title}"


def _unlike(found: Comparison) -> str:
    if found.a.is_sharded != found.b.is_sharded:
        return "; one is sharded, one is not, so nothing but their steps is compared"
    return "; they are not of the same model" if found.step is None else ""


def _else(found: Comparison) -> str:
    """Return what else is shown to differ, of what is no time of a single stage."""
    said = []
    exposed, sent = found.quantity("exposed"), found.quantity("wire_bytes")
    if exposed is not None and exposed.differs:
        said.append(f"exposed communication, {signed_ms(exposed.difference)}")
    if sent is not None and sent.differs and sent.share is not None:
        said.append(f"what is sent, {signed(sent.share, 'share')}")
    return f". Shown to differ: {'; '.join(said)}." if said else "."


def _lost(found: Comparison) -> str:
    """Return what hooks lose of the gradients, in the steps that were checked."""
    error, sent = found.quantity("error"), found.quantity("wire_bytes")
    if error is None:
        hooks = {(one.hook, one.hook_options) for one in (found.a, found.b)}
        if len(hooks) == 1 or sent is None or not sent.differs:
            return ""
        return (
            " What the gradients lose is unknown, because no sampled check measured it; pass a "
            "smaller error_every."
        )
    both = [x for x in (error.a, error.b) if x is not None]
    is_alike = len(both) == 2 and max(both) < _APART * min(both)
    if is_alike or max(both, default=0.0) <= _ROUNDING:
        return ""
    a, b = (value(x, "error") for x in (error.a, error.b))
    return (
        f" Relative error of the gradients, in sampled steps: {b} with {found.names[1]}, {a} with "
        f"{found.names[0]}."
    )
