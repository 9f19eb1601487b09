"""A comparison in one sentence, of nothing but what is shown to differ; one more on what is lost.

Comparison without its sentence --step time, parts--> "fp16 is 11 % (9 to 13) faster than ..."
"""

from __future__ import annotations

from collections.abc import Sequence

from ...records.units import bandwidth, megabytes, milliseconds, ms, named_ranks, percent
from .comparison import Comparison, Difference, RunFacts, Unit

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
    return percent(of) if unit == "share" else f"{of:#.4g}" if unit == "loss" else f"{of:.3g}"


def signed(of: float | None, unit: Unit) -> str:
    """Return a difference with its sign."""
    if of is None:
        return "-"
    return f"{sign(of)}{value(abs(of), 'error' if unit == 'loss' else unit)}"


def sign(of: float) -> str:
    """Return the sign of a difference; none of 0."""
    return MINUS if of < 0 else "+" if of > 0 else ""


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
    if 0 < abs(found.share) < _LEAST_SHARE:
        return "< 0.1 %"
    return f"{sign(found.share)}{percent(abs(found.share))}"


_OF_STEP = 0.1
"""Of the difference of the step time: the least that a part must be to be said."""

_MOST_PARTS = 3

_ROUNDING = 1e-6
"""Relative error of a sum of 32 bits, at most."""

_APART = 1.1
"""Times as large is another relative error."""

_WORDS = {
    "turn": "waiting for earlier calls (turn)",
    "queue": "waiting in the queue",
    "wait": "waiting for the last rank",
    "exposed": "exposed communication",
    "calls": "other work in the hook's calls",
    "all_calls": "the hook's calls",
    "compute": "what is outside of communication (forward, backward, optimizer, data)",
}
"""For parts whose title, at the head of a table's row, is too short for a sentence."""


def side_names(a: Sequence[RunFacts], b: Sequence[RunFacts]) -> tuple[str, str]:
    """Return what the sides are called: by their hooks, or where these are equal, as the runs."""
    if a[0].hook != b[0].hook:
        return a[0].hook, b[0].hook
    return _runs(a), _runs(b)


def _runs(side: Sequence[RunFacts]) -> str:
    more = len(side) - 1
    return side[0].name + (f" and {more} more" if more else "")


def sentence(found: Comparison) -> str:
    """Return the sentence, and a second one where gradients lose something, or may."""
    return _of_step(found) + _lost(found)


def _of_step(found: Comparison) -> str:
    step = found.quantity("period")
    a, b = found.a.name, found.b.name
    among = _among(found)
    if step is None or step.a is None or step.b is None:
        return f"Whether {b} is faster than {a} is unknown, because no step time of one is known."
    if step.verdict == "unknown":
        return (
            f"Whether {b} is faster than {a} is unknown, because {step.why}: {ms(step.b)} a step "
            f"against {ms(step.a)}."
        )
    if not step.differs:
        return f"{_not_shown(found, step, among)}{_else(found)}"
    outside = " by the median step, not by the mean" if by_median_alone(found) else ""
    outside += ", though mostly where a hook does nothing" if mostly_outside(found) else ""
    other = "; they are not of the same model" if found.step is None else ""
    if found.a.runs[0].is_sharded != found.b.runs[0].is_sharded:
        other = "; one is sharded, one is not, so nothing but their steps is compared"
    return f"{among} {_faster(b, a, step)}{outside}{_parts(found, step)}{other}."


def _among(found: Comparison) -> str:
    if found.by_runs:
        return f"Over {len(found.a.runs)} and {len(found.b.runs)} runs,"
    return "Between these two runs,"


def _faster(b: str, a: str, step: Difference) -> str:
    share, low, high = step.share or 0.0, step.share_low or 0.0, step.share_high or 0.0
    ends = sorted((abs(low), abs(high)))
    within = f"({_number(ends[0])} to {_number(ends[1])})"
    return f"{b} is {percent(abs(share))} {within} {'faster' if share < 0 else 'slower'} than {a}"


def by_median_alone(found: Comparison) -> bool:
    """Return whether the mean step time is not shown to differ the way that the median does."""
    median, mean = found.quantity("period"), found.quantity("period_mean")
    if median is None or mean is None or not median.differs:
        return False
    return not mean.differs or (mean.difference or 0.0) * (median.difference or 0.0) < 0


def mostly_outside(found: Comparison) -> bool:
    """Return whether half of the step time's difference or more is outside of communication."""
    compute = next((p.difference for p in found.parts if p.key == "compute"), None)
    step = None if found.step is None else found.step.difference
    if compute is None or not compute.differs or compute.difference is None or not step:
        return False
    return compute.difference / step >= 1 / 2


def _number(share: float) -> str:
    return percent(share).removesuffix(" %")


def _parts(found: Comparison, step: Difference) -> str:
    least = _OF_STEP * abs(step.difference or 0.0)
    parts = [p for p in found.parts if p.difference.differs]
    parts = [p for p in parts if abs(p.difference.difference or 0.0) >= least]
    parts.sort(key=lambda p: -abs(p.difference.difference or 0.0))
    if not found.parts:
        return ""
    if not parts:
        return "; no stage is shown to account for it"
    said = (
        f"{signed_ms(p.difference.difference)} of {_title(found, p.key, p.title, p.difference)}"
        for p in parts[:_MOST_PARTS]
    )
    return ": " + ", ".join(said)


def _title(found: Comparison, key: str, title: str, of: Difference) -> str:
    if key != "wait":
        return _WORDS.get(key, title)
    side = found.b if (of.difference or 0.0) > 0 else found.a
    late = {one.rank for one in side.runs[0].late}
    return f"waiting for {named_ranks(late)}, late in {side.name}" if late else _WORDS[key]


def _not_shown(found: Comparison, step: Difference, among: str) -> str:
    low, high = (signed_ms(x).removesuffix(" ms") for x in (step.low, step.high))
    text = (
        f"{among} the step time is not shown to differ: {ms(step.b)} with {found.b.name}, "
        f"{ms(step.a)} with {found.a.name} ({low} to {high} ms)"
    )
    if step.verdict == "same":
        return f"{among} the step time is the same, {ms(step.a)}"
    return f"{text}, and {step.why}" if step.why else text


def _lost(found: Comparison) -> str:
    """Return what hooks lose of the gradients, in the steps that were probed."""
    error = found.quantity("error")
    if error is None or error.a is error.b is None:
        return _unprobed(found)
    if _is_alike(error.a, error.b):
        return ""
    a, b = (value(x, "error") for x in (error.a, error.b))
    return (
        f" Relative error of the gradients, in probed steps: {b} with {found.b.name}, {a} with "
        f"{found.a.name}."
    )


def _unprobed(found: Comparison) -> str:
    first, second = found.a.runs[0], found.b.runs[0]
    sent = found.quantity("wire_bytes")
    is_same = (first.hook, first.hook_options) == (second.hook, second.hook_options)
    if is_same or sent is None or not sent.differs:
        return ""
    return (
        " What the gradients lose is unknown, because no probe measured it; pass a smaller "
        "error_every."
    )


def _is_alike(a: float | None, b: float | None) -> bool:
    """Return whether two relative errors are nearly the same, or none but by rounding."""
    most = max(a or 0.0, b or 0.0)
    if most <= _ROUNDING:
        return True
    return a is not None and b is not None and most < _APART * min(a, b)


def _else(found: Comparison) -> str:
    """Return what else is shown to differ, of what is no time of a single stage."""
    said = []
    exposed, sent = found.quantity("exposed"), found.quantity("wire_bytes")
    if exposed is not None and exposed.differs:
        said.append(f"exposed communication, {signed_ms(exposed.difference)}")
    if sent is not None and sent.differs and sent.share is not None:
        said.append(f"what is sent, {sign(sent.share)}{percent(abs(sent.share))}")
    return f". Shown to differ: {'; '.join(said)}." if said else "."


def break_even_text(found: Comparison) -> str:
    """Return from which bandwidth on the second side's hook stops paying."""
    limit = bandwidth(found.pays_below_bytes_per_second)
    return f"break-even: on links above {limit} what {found.b.name} saves is less than it costs"
