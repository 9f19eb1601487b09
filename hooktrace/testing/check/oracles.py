"""What is asked of a hook's runs: a table of oracles; the first that fails is the verdict.

    runs --each of a scenario's oracles, in order--> Flaw(kind, what), or None

| oracle        | a hook passes if                                                                 |
| ------------- | -------------------------------------------------------------------------------- |
| finite        | finite gradients give finite results                                             |
| same          | all ranks have the same results                                                  |
| nan_comes_out | a NaN of one rank is in the results of all                                       |
| arrives       | each rank's gradients come, in the step that they are of                         |
| elements      | the ends of parameters come as often as each other, and whole parameters too     |
| weights       | each rank's gradients weigh 1/n, by least squares                                |
| conserves     | zeros give a part of what is owed, once, and nothing else                        |
| repeats       | the same gradients give the same result, or each element one of two values       |
| explained     | a result is what is due, but for what the bytes lose; or the rest comes later    |
| compresses    | a hook that leaves something out for later sends less for it                     |
| enough        | something of the average is left in usual training                               |
| in_range      | large gradients keep their direction, whatever clips them                        |

A sparse hook sends fewer values than there are elements.  What it leaves out of a step is not
judged by itself: weights, elements and what it pays back are.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from ...probes.factors import named_factors
from .runs import Run, Step, cosine, distance, dot, is_alike, projection

_ONCE = 1.3
"""Of what is owed: more is clearly more than once."""

_BACK = -0.3
_PART = 0.9
_NEVER = 1e-6
_LITTLE = 0.5
_BY_CHANCE = 5.0
"""Standard deviations of a cosine."""

_TURNED = 0.3
"""A cosine: what clipping and signs leave is more, what integers that overflow leave is less."""


class Flaw(NamedTuple):
    """What is wrong: a ``kind`` of ``records.anomalies``, and a sentence.

    ``remedy``: that of the kind if there is none for this case.
    """

    kind: str
    what: str
    remedy: str | None = None


Oracle = Callable[[Sequence[Run]], Flaw | None]


def verdict(runs: Sequence[Run], oracles: Sequence[Oracle]) -> Flaw | None:
    """Return the flaw of the first oracle that a hook's runs fail; ``None`` if they pass all."""
    return next((flaw for oracle in oracles if (flaw := oracle(runs)) is not None), None)


def of_each(test: Callable[[Run], Flaw | None]) -> Oracle:
    """Return the oracle that asks each run by itself."""

    @functools.wraps(test)
    def first(runs: Sequence[Run]) -> Flaw | None:
        return next((flaw for run in runs if (flaw := test(run)) is not None), None)

    return first


_ODD = {
    **dict.fromkeys(("rest", "end", "zeros"), ("gradients of zeros", "nonfinite_result")),
    "huge": ("gradients of up to 1e5", "overflow"),
    "after": ("ordinary gradients after odd ones", "nan_stays_in_state"),
}
"""By phase: the gradients in words, and what it means that their results are not finite."""


@of_each
def finite(run: Run) -> Flaw | None:
    """Finite gradients give finite results."""
    for step in run.steps:
        if step.is_finite or step.phase == "nan":
            continue
        given, kind = _ODD.get(step.phase, ("finite gradients", "nonfinite_result"))
        count = int((~step.result.isfinite()).sum())
        what = f"{given} gave NaN or inf in {count} of {len(step.result)} elements"
        remedy = None if step.average.any() else "look for a division by a norm or a range"
        return Flaw(kind, f"{what} (step {step.number}, {run.name})", remedy)
    return None


@of_each
def same(run: Run) -> Flaw | None:
    """All ranks have the same results."""
    what = f"{run.name}: the results are not the same on all ranks"
    return None if run.agrees else Flaw("replicas_diverge", what)


@of_each
def nan_comes_out(run: Run) -> Flaw | None:
    """A NaN of one rank is in the result of all."""
    if not any(step.is_finite and step.average.isnan().any() for step in run.of("nan")):
        return None
    what = "a NaN went in on one rank and finite gradients came out on all"
    return Flaw("nan_hidden", f"{what}: neither a loss scaler nor the loss will show it")


@of_each
def arrives(run: Run) -> Flaw | None:
    """A rank's gradients come at all, and in the result of their own step."""
    if not run.came:
        what = f"{run.name}: the result is zero in all of {len(run.active)} steps"
        return Flaw("ranks_missing", what)
    fresh = [step for step in run.came if step.phase in ("first", "fresh")]
    found = max((abs(cosine(*run.inner(s.result, s.average))) for s in fresh), default=1.0)
    by_chance = _BY_CHANCE / math.sqrt(sum(run.lengths))
    what = f"{run.name}: nothing of a step's own gradients is in its result, in its own place"
    why = f"(cosine {found:.2g}, where chance explains {by_chance:.2g})"
    return None if found > by_chance else Flaw(run.wrong, f"{what} {why}")


@of_each
def elements(run: Run) -> Flaw | None:
    """All parameters of a length come as often, and so do the ends of all, which are the largest.

    Places chosen by chance may all miss one; a place that others of its kind would not miss in
    that many steps once in a million is never sent.
    """
    if not run.came:
        return None
    came = torch.stack([(step.result != 0) | (step.average == 0) for step in run.came])
    parts = [part for part in came.split(run.lengths, 1) if part.shape[1]]
    alike = [[part[:, end] for part in parts] for end in (0, -1)]
    for length in {part.shape[1] for part in parts}:
        alike.append([part.any(1) for part in parts if part.shape[1] == length])
    for places in alike:
        rates = [place.double().mean().item() for place in places]
        if not min(rates) and (1 - max(rates)) ** len(run.came) < _NEVER:
            what = f"{run.name}: an end of some parameters, or a whole one, never comes in"
            likes = f"{len(run.came)} steps; its likes do in {max(rates):.0%} of them"
            return Flaw(run.wrong, f"{what} {likes}")
    return None


_FACTORS = {
    "not_averaged": "the sum of all ranks is not divided",
    "averaged_twice": "the sum of all ranks is divided twice",
    "wrong_scale": "the sum is divided by the ranks",
    "wrong_sign": "the result has the opposite sign",
}
"""Kinds of factors that all runs of a hook can have, and what they mean."""


def weights(runs: Sequence[Run]) -> Flaw | None:
    """Each rank's gradients weigh what they should, alone and together."""
    found = [(run, run.weight) for run in runs if run.weight is not None]
    if all(weight.is_right for _, weight in found):
        return None
    values, slack = [weight.value for _, weight in found], max(w.slack for _, w in found)
    dues = [
        named_factors(run.divisor) | {"wrong_scale": run.divisor / run.ranks, "wrong_sign": -1.0}
        for run, _ in found
    ]
    kind, what = found[0][0].wrong, "the ranks' gradients do not weigh 1/n"
    named = (
        name
        for name in _FACTORS
        if any(due[name] != 1 for due in dues)
        and all(is_alike(value, due[name]) for value, due in zip(values, dues, strict=True))
    )
    if name := next(named, ""):
        kind, what = name, _FACTORS[name]
    elif max(values) - min(values) <= 2 * slack * max(map(abs, values)) and not any(
        run.keeps for run, _ in found
    ):
        kind, what = "wrong_scale", "the result is the average times a factor"
    parts = ", ".join(f"{weight.value:.3g} ({run.name})" for run, weight in found)
    return Flaw(kind, f"{what}: by least squares gradients weigh {parts} times what they should")


@of_each
def conserves(run: Run) -> Flaw | None:
    """Zeros give zeros, or a part of what is owed, with its sign, once, and nothing else.

    At the end a hook may hand on what it knows of older gradients, if it has given that much less
    of them before (EF21).
    """
    largest = max(step.average.norm().item() for step in run.active)
    for step in run.of("rest", "end"):
        if step.norm <= run.least:
            continue
        owed, shared = step.owed.norm().item(), dot(step.result, step.owed)
        paid, part = shared / (owed**2 or 1e-30), shared / step.norm**2
        # Of a full number the rest may be rounding.
        is_rounding = run.wire.is_bounded and step.norm <= run.tolerance * largest
        if _BACK <= paid <= _ONCE and (is_rounding or part >= _PART or step.phase == "end"):
            continue
        what = f"{run.name}, step {step.number}: all gradients are zeros, and the result "
        if owed <= run.least:
            return Flaw(run.wrong, f"{what}is not, though nothing was left out of earlier steps")
        what += f"has {paid:.2g} times what earlier steps left out, which is {max(part, 0):.0%} of"
        return Flaw(
            run.wrong, f"{what} it; residual = input - sent, and input = gradient + residual"
        )
    return None


@of_each
def repeats(run: Run) -> Flaw | None:
    """The same gradients give the same result, but for values to which chance rounds.

    A sparse hook may choose places by chance; if it always sends the same ones, the same values.
    """
    came = run.repeats != 0
    is_sparse = not run.wire.is_bounded and (came.all() or (came != came[0]).any())
    if not run.varies or run.rounds_by_chance or is_sparse:
        return None
    spread = max(distance(result, run.repeats[0]) for result in run.repeats[1:])
    what = f"{run.name}: the same gradients give results that differ by {spread:.2g} of their norm"
    return Flaw(run.wrong, f"{what}, and not by one level of a quantiser")


@of_each
def explained(run: Run) -> Flaw | None:
    """A result is what is due, but for what its bytes lose, or a projection of it."""
    if not run.wire.is_bounded or run.rounds_by_chance:
        return None
    worst = max(run.active, key=lambda step: 0.0 if _is_projection(run, step) else step.error)
    if worst.error <= run.tolerance or _is_projection(run, worst):
        return None
    what = f"{run.name}, step {worst.number} ({worst.phase} gradients): the result is off by"
    why = f"where {run.wire.dtype} of every element explains {run.tolerance:.2g}"
    return Flaw(run.wrong, f"{what} {worst.error:.2g} of the gradients' norm, {why}")


def _is_projection(run: Run, step: Step) -> bool:
    """Return whether a result is a projection of what was meant, and the rest comes later."""
    return run.keeps and is_alike(projection(step.result, run.meant(step)), 1.0)


@of_each
def compresses(run: Run) -> Flaw | None:
    """A hook that leaves something out of a step, and pays it back later, sends less for it."""
    if not run.wire.is_bounded or run.is_fine or not run.keeps:
        return None
    what = f"it feeds back what it leaves out, and sends {run.wire.bits:.3g} bits an element"
    return Flaw("no_compression", f"{what} all the same")


@of_each
def enough(run: Run) -> Flaw | None:
    """The average is in the result of a step, or of all together, if error feedback brings it."""
    results = torch.stack([step.result for step in run.active])
    averages = torch.stack([step.average for step in run.active])
    of_steps = statistics.median(map(cosine, results, averages))
    similar = max(of_steps, cosine(results.sum(0), averages.sum(0)))
    what = f"the cosine of the result with the average is {similar:.2g}"
    return None if similar >= _LITTLE else Flaw("precision", what)


@of_each
def in_range(run: Run) -> Flaw | None:
    """Large gradients keep their direction, if all elements are sent.

    Clipping is right; what a cast does to a value that leaves its range is not.
    """
    for step in run.of("large") if run.wire.is_bounded else ():
        similar = cosine(step.result, step.due)
        if similar < _TURNED:
            what = f"{run.name}, step {step.number}: gradients reach 100, and the cosine of the"
            why = f"result with the average is {similar:.2g}; look at casts to integers"
            return Flaw(run.wrong, f"{what} {why}")
    return None


FINITE = (finite, same, nan_comes_out)
"""Those of any scenario."""

ORDINARY = (*FINITE, elements, weights, explained)
"""Those of ordinary gradients."""

USUAL = (*ORDINARY, enough)
"""Those of usual training, long enough to see how much is left."""

OF_LARGE = (*FINITE, in_range)
"""Those of gradients that a hook may clip."""

CHOSEN_ASKED = (
    *(finite, same, arrives, elements, weights, conserves, repeats, explained, compresses),
)
"""Those of chosen gradients."""

OF_A_STEP = (elements, weights, explained)
"""Those that a hook is not asked that is known to lose more than its bytes explain."""
