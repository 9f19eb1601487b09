"""Is a hook right?  Pure functions of the steps that the case ``arithmetic`` made, and the wire.

    Step ..., WireFormat --verdict--> the first Flaw, or None

Of a hook that sends all elements every result must be explained (``steps.py``) within what the wire
format loses.  Of one that sends less, no single result says much, and what is asked for is:

- what arrives does not overshoot: <r, a> is about <r, r> for a projection of a, as keeping some
  elements is, or the mean of many results of the same gradients is their average (unbiased).

Of both:

- a step's result has something of this step's gradients in it;
- after gradients of zeros it pays back what is owed, at most once, and owes no more than before;
- no rank weighs more than another, and small gradients weigh 1/n (``weights.py``);
- all ranks' values for an element are in it, and nothing else (there too);
- no level of a quantiser is added to all elements.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from .causes import cause_of
from .series import TWICE, Series, is_unbiased, paid_by, true_kind
from .steps import FEED_BACK, Flaw, bounded, cosine, distance, larger_parts
from .weights import adds_all_ranks, keeps_all_values, repeats_values, weighs_alike

_PART = 0.7
_BACK = -0.3
_GROWS = 1.1
_NO_MEMORY = 1e-5
_SAME = 1e-3
_PROJECTION = 0.7
_CLIPPED = 0.95
_FELT = 2.0
_LEVELS_OFF = 0.75
_MOSTLY = 0.5
_FINE = 0.05
_NEVER = 1e-6
_LARGE = ("impulse", "alike")
_ONE_ELEMENT = 0.3
_OF_RANGE = 0.03


def verdict(series: Series) -> Flaw | None:
    """Return the first thing that is wrong, if anything is."""
    if not series.steps or not all(step.is_finite for step in series.steps):
        return None
    tests = _OF_LESS if true_kind(series) == "less" else _OF_ALL
    return next((found for test in tests if (found := test(series))), None)


def _arrives(series: Series) -> Flaw | None:
    """A step's result has something of its own gradients in it."""
    steps = series.of("impulse", "fresh")
    found = max(cosine(step.wide, step.average) for step in steps)
    if found > series.chance:
        return None
    what = (
        f"nothing of a step's own average is in its result (cosine {found:.2g}, where chance "
        f"explains {series.chance:.2g})"
    )
    remedy = f"give DDP the future of this step's own collective, and {FEED_BACK}"
    return Flaw(*cause_of(steps, what, remedy=remedy))


def _adds_nothing(series: Series) -> Flaw | None:
    """Gradients of zeros give zeros, or some of what is owed: not the same every time."""
    rests = series.of("rest at last")
    largest = max(step.average.norm().item() for step in series.steps)
    if not rests or rests[-1].wide.norm() <= _NO_MEMORY * largest:
        return None
    if any(distance(step.wide, rests[0].wide) > _SAME for step in rests):
        return None
    if (paid_by(rests[-1]) or 0.0) > 0:
        return None
    return Flaw(
        "while gradients are zeros, all results are the same one, and it is not zero",
        "add nothing to the average; weight decay is the optimizer's",
    )


def _pays_back(series: Series) -> Flaw | None:
    """After zeros comes a part of what is owed and nothing else, and what is owed does not grow."""
    least = _NO_MEMORY * max(step.average.norm().item() for step in series.steps)
    is_less = true_kind(series) == "less"
    for rest in series.of("rest after", "rest at last"):
        paid, norm = paid_by(rest), rest.wide.norm().item()
        if paid is None or norm <= least:
            continue
        owed = rest.owed.norm().item()
        part = paid * (owed / norm) ** 2
        # Of a full number the rest may be rounding.
        is_else = is_less and part + series.chance * owed / norm < _PART
        if is_else or paid > TWICE or paid < _BACK:
            return Flaw(
                f"step {rest.number}: all gradients are zeros, and the result has {paid:.2g} times "
                f"what earlier steps left out, which is {max(part, 0.0):.0%} of the result",
                "add what was left out once, with its own sign: residual = input - sent, where "
                "input = gradient + residual; momentum is the optimizer's",
            )
    last = series.of("rest at last")
    if len(last) < 2 or all(rest.wide.norm() <= least for rest in last):
        return None
    before, after = last[0].owed.norm().item(), last[-1].owed.norm().item()
    if after <= _GROWS * before + least:
        return None
    return Flaw(
        f"while gradients are zeros, all results together move away from all averages, "
        f"{after / max(before, 1e-30):.2g} times as far in {len(last) - 1} steps",
        f"{FEED_BACK}; momentum is the optimizer's",
    )


def _clips_everything(series: Series) -> Flaw | None:
    """Whoever clips even gradients of 1e-4, and larger ones more, may mean it."""
    fresh, small = series.of("fresh"), series.of("small")
    if any(s.error_of_clipping > series.tolerance(s) for s in (*fresh, *small)):
        return None
    least = min((s.wide.norm() / s.average.norm()).item() for s in small)
    most = max((s.wide.norm() / s.average.norm()).item() for s in fresh)
    if least >= _CLIPPED or least <= _FELT * most:
        return None
    return Flaw(
        f"gradients of 1e-4 come out {1 / least:.2g} times smaller, and larger ones smaller still, "
        "as of clipping by a norm that all gradients exceed",
        "clip at a norm that ordinary gradients do not reach, or in the optimizer's step",
        only_warns=True,
    )


def _is_explained(series: Series) -> Flaw | None:
    """Each result is the average, but for what the wire explains."""
    is_fine = true_kind(series) == "byte" and series.wire.kind != "byte"
    worst, by, norm = None, 1.0, 0.0
    for step in series.steps:
        last, norm = norm, step.average.norm().item()
        # What clipping by value does to ordinary gradients shows in them.
        if step.is_rest or (step.phase in _LARGE and bounded(step) is not None):
            continue
        tolerance = max(series.tolerance(step), _FINE if is_fine else 0.0)
        # What a step left out comes with the next one, whose own size may be much smaller.
        near = min(step.error * norm / (norm + last), step.error_with_feedback)
        # Clipping leaves small gradients alone.
        if near > tolerance and step.phase != "small":
            near = min(near, step.error_of_clipping)
        if near / tolerance > by:
            worst, by = step, near / tolerance
    if worst is None:
        return None
    what = (
        f"step {worst.number} ({worst.phase} gradients): the result is off by {worst.error:.2g} of "
        f"the average's norm, where {series.wire.words} explains "
        f"{series.tolerance(worst):.2g}"
    )
    return Flaw(*cause_of(series.steps, what, worst))


def _has_all_elements(series: Series) -> Flaw | None:
    """No element is far off, such as the last one, for which a loop may have no room."""
    if series.wire.kind != "byte":
        return None
    for step in series.of("fresh"):
        target = step.meant
        size = step.gradients.abs()
        # Ranges differ between buckets, which only makes this more lenient.
        allowed = _ONE_ELEMENT * size.mean(0) + len(size) * _OF_RANGE * size.amax()
        bad = ((step.wide - target).abs() > allowed).nonzero().flatten()
        if len(bad):
            i = int(bad[0])
            return Flaw(
                f"step {step.number}: {len(bad)} of {len(target)} elements are far off, the first "
                f"{step.wide[i]:.3g} where {target[i]:.3g} is due",
                "look at where the hook cuts a bucket into pieces, and at the last one",
            )
    return None


def _is_centred(series: Series) -> Flaw | None:
    """No whole level of a quantiser is added to all elements."""
    if series.wire.kind in ("exact", "half"):
        return None
    levels = 2 ** max(1.0, min(8.0, series.wire.bits)) - 1
    shifts, units = [], []
    for step in series.of("fresh"):
        off = step.wide - step.meant
        if abs(off.mean()) > _MOSTLY * off.square().mean().sqrt():
            shifts.append(off.mean().item())
        # Of a rank's gradients, in the middle one of the larger parameters.
        ranges = sorted((own.amax(1) - own.amin(1)).mean().item() for own, _ in larger_parts(step))
        units.append(ranges[len(ranges) // 2] / levels)
    if len(shifts) < len(units) or not units:
        return None
    shift, unit = sum(shifts) / len(shifts), sum(units) / len(units)
    if abs(shift) <= _LEVELS_OFF * unit:
        return None
    return Flaw(
        f"all elements are off by {shift:+.2g} on average, about {abs(shift) / unit:.0f} levels of "
        "the quantiser",
        "look at its zero point, and at how values are rounded",
    )


def _does_not_overshoot(series: Series) -> Flaw | None:
    """What arrives is a projection of what was due, or right in the mean of many steps."""
    steps = [*series.of("fresh"), *series.of("same")]
    sent = sum(float(step.wide @ step.wide) for step in steps)
    if not sent:
        return Flaw("nothing of the average arrives in any step", "look at what is sent")
    by_average = sum(float(step.wide @ step.average) for step in steps) / sent
    by_target = sum(float(step.wide @ step.target) for step in steps) / sent
    if max(by_average, by_target) >= _PROJECTION or is_unbiased(series):
        return None
    factor = 1 / max(by_average, by_target, 1e-6)
    return Flaw(
        f"the part of the average that arrives is about {factor:.2g} times too large, and the mean "
        "of many results of the same gradients is not their average",
        "divide what is received by the number of ranks that sent it; a random choice of k of n "
        "elements is multiplied by n/k only where nothing is kept for later",
    )


def _reaches_all(series: Series) -> Flaw | None:
    """All parameters of a length arrive as often, and the ends of all, which are the largest."""
    steps = series.of("fresh", "small", "same")
    came = torch.stack([step.wide != 0 for step in steps]).split(steps[0].lengths, 1)
    by_length: dict[int, list[torch.Tensor]] = {}
    for part in came:
        by_length.setdefault(part.shape[1], []).append(part)
    alike = [[part.any(1) for part in parts] for parts in by_length.values()]
    alike.append([torch.cat([p[:, i] for p in ps]) for ps in by_length.values() for i in (0, -1)])
    for places in alike:
        rates = [place.double().mean().item() for place in places]
        if not min(rates) and (1 - max(rates)) ** len(places[0]) < _NEVER:
            return Flaw(
                f"some elements never arrive in {len(steps)} steps, at the end of a parameter or "
                f"in all of one, where their likes do {100 * max(rates):.0f} % of the time",
                "look at how the hook cuts a bucket into pieces, and at the last one",
            )
    return None


Test = Callable[[Series], Flaw | None]

_OF_ALL: tuple[Test, ...] = (
    _adds_nothing,
    _clips_everything,
    _pays_back,
    _is_explained,
    _has_all_elements,
    weighs_alike,
    _is_centred,
)
_OF_LESS: tuple[Test, ...] = (
    _adds_nothing,
    _pays_back,
    _arrives,
    _does_not_overshoot,
    _reaches_all,
    adds_all_ranks,
    keeps_all_values,
    repeats_values,
    weighs_alike,
    _is_centred,
)
