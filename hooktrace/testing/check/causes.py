"""What kind of mistake gives a result: a step --cause_of--> a sentence and a remedy.

Each test is a formula that the result fits where the average does not: another step's average, the
largest of the ranks' gradients, other weights, a bound, a constant.  The first one that fits is
named, and where none does the sentence ends with the error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from .steps import Step, bounded, cosine, distance, fit

_FITS = 0.1
"""Of the distance to the average: a formula fits better than that by far."""

_LATE = 0.3
_FEW = 4e-4
_MOSTLY = 0.5
_WRONG = 0.05
_RELATED = 0.1
_FEW_VALUES = 0.01
_REMEDY = "compare one bucket's result with the mean of the gradients"

_PIECES = "look at how the hook cuts a bucket into pieces, and at what it leaves out"
_RANGE = "a quantiser's range must reach the largest; what it cuts off is late, or lost"

Cause = tuple[str, str]
"""What does that, and the remedy."""


def cause_of(
    steps: Sequence[Step], what: str, worst: Step | None = None, remedy: str = _REMEDY
) -> Cause:
    """Return what is seen with what does that, and the remedy.

    ``what``: the sentence so far.  ``worst``: the step to explain, by default the last.
    ``remedy``: where nothing fits.
    """
    found = next(_causes(steps, worst or steps[-1]), None)
    return (what, remedy) if found is None else (f"{what}: {found[0]}", found[1])


def _causes(steps: Sequence[Step], step: Step) -> Iterator[Cause]:
    """Yield what explains a step, the surest first."""
    yield from _late(steps, step)
    if not step.wide.any():
        remedy = "look at what the hook leaves out; a quantiser's range must follow the gradients"
        yield "all of it is 0", remedy
    yield from _extreme(step)
    yield from _weights(steps, step)
    if (limit := bounded(step)) is not None:
        remedy = "clip by the norm, after averaging, or clip in the optimizer's step"
        yield f"no element is larger than {limit:.3g}", remedy
    yield from _some_elements(step)
    most = max(len(own.unique()) for own in step.wide.split(step.lengths))
    if most <= _FEW_VALUES * max(step.lengths):
        remedy = "spread a quantiser's levels over the values, or feed back what they lose"
        yield f"no parameter has more than {most} different values", remedy
    off = step.wide - step.average
    shift = off.mean().item()
    if abs(shift) >= _MOSTLY * off.square().mean().sqrt().item():
        remedy = "look at the zero point of a quantiser, and at how values are rounded"
        yield f"{shift:+.2g} is added to all elements on average", remedy
    yield from _mixed(steps, step)
    same = [s for s in steps if s.phase == "same"]
    spread = max((distance(s.wide, same[0].wide) for s in same[1:]), default=0.0)
    if spread >= _MOSTLY * step.error:
        remedy = "look for random numbers, or for what the hook keeps from step to step"
        yield f"the same gradients give results that differ by {spread:.2g}", remedy


def _late(steps: Sequence[Step], step: Step) -> Iterator[Cause]:
    for before, after in pairwise(steps):
        # Whatever gives zeros would fit, and momentum after a step that is larger than others.
        if not before.average.any() or after.is_rest:
            continue
        is_new = cosine(before.average, after.average) < _MOSTLY
        if is_new and distance(after.wide, before.average) <= _LATE:
            what = f"step {after.number} has the average of the step before it"
            yield what, "give DDP the future of this step's own collective"


def _extreme(step: Step) -> Iterator[Cause]:
    for name, found in (
        ("largest", step.gradients.amax(0)),
        ("smallest", step.gradients.amin(0)),
        ("product", step.gradients.prod(0)),
    ):
        if len(step.gradients) > 1 and distance(step.wide, found) < _FITS * min(1.0, step.error):
            what = f"it is the {name} of the ranks' gradients, element by element"
            yield what, "reduce with dist.ReduceOp.SUM and divide by the world size"


def _weights(steps: Sequence[Step], step: Step) -> Iterator[Cause]:
    weights = fit(step.gradients, step.wide)
    if weights is None:
        return
    # Where gradients go on as they were, momentum gives a multiple of their average too.
    for each in (step, *(s for s in steps if s.phase == "fresh")):
        own = fit(each.gradients, each.wide)
        off = math.inf if own is None else distance(each.wide, own @ each.gradients)
        if off > _FITS * min(1.0, step.error):
            return
    parts = ", ".join(f"{weight * len(weights):.4g}" for weight in weights.tolist())
    what = f"the ranks' gradients weigh {parts} times what they should"
    yield what, "divide the sum of all ranks by their number, and by nothing else"


def _some_elements(step: Step) -> Iterator[Cause]:
    for due, when in (
        (step.average, ""),
        (step.target, ", with what earlier steps left out"),
    ):
        off = (step.wide - due).abs()
        bad = off > _WRONG * step.gradients.abs().mean(0)
        for kind, how, remedy in (
            (step.wide == 0, "come out as 0", _PIECES),
            (step.wide.abs() < due.abs(), "are too small", _RANGE),
            (bad, "are wrong", _PIECES),
        ):
            some = bad & kind
            count, numel = int(some.sum()), len(off)
            if 0 < count <= _MOSTLY * numel and off[~some].norm() <= _WRONG * off.norm():
                i = int((off * some).argmax())
                example = f"{step.wide[i]:.3g} where {due[i]:.3g} is due{when}"
                yield f"{count} of {numel} elements {how}: {example}", remedy


def _mixed(steps: Sequence[Step], step: Step) -> Iterator[Cause]:
    after = [(a, b) for a, b in pairwise(steps) if b.phase == "rest after" and a.phase == "impulse"]
    if not after or after[0][1].wide.norm() <= _FEW * step.average.norm():
        return
    before, rest = after[0]
    if cosine(rest.wide, rest.owed) > _MOSTLY:
        return
    what = "gradients of zeros give a result that is not zero"
    if abs(cosine(rest.wide, before.average)) > _RELATED:
        yield (
            f"{what}, and the step before is in it",
            "keep nothing from step to step but what was left out of the result; momentum is the "
            "optimizer's",
        )
    yield what, "look at what the hook adds to the average, and keeps from step to step"
