"""What is asked of a hook's runs: a table of oracles; the first that a run fails is the verdict.

    runs --each of a scenario's oracles, in order--> Flaw(kind, what), or None

That all ranks have the same results is asked where their answers meet (``host.py``).  A sparse hook
sends fewer values than there are elements.  What it leaves out of a step is not judged by itself:
weights, elements and what it pays back are.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch

from ...probes.factors import named_factors
from ...records.anomalies import anomaly_kind
from .runs import ALIKE, Run, cosine, fitted, projected

_SAME = 0.015
"""By how much weights differ that are the same factor."""

_CHANCE = 5.0
"""Standard deviations."""

_CLEAN = 0.2
_ALMOST = 0.02
"""Of a result: scatter around a multiple of what is due, and what it may do to a weight."""

_ONCE = 1.3
"""Of what is owed: more is clearly more than once."""

_BACK = -0.3
_PART = 0.9
_NEVER = 1e-6
_TURNED = 0.3
"""A cosine: what clipping and signs leave is more, what integers that overflow leave is less."""


class Flaw(NamedTuple):
    """What is wrong: a ``kind`` of ``records.anomalies``, and a sentence.

    ``fix``: that of the kind if there is none for this case.
    """

    kind: str
    what: str
    fix: str | None = None


Oracle = Callable[[Run, Sequence[Run]], Flaw | str | None]
"""Judges a run among all of its scenario; a sentence alone means that the results are wrong."""


def verdict(runs: Sequence[Run], oracles: Sequence[Oracle]) -> Flaw | None:
    """Return the flaw of the first oracle that one of the runs fails; ``None`` if they pass all."""
    for oracle in oracles:
        for run in runs:
            found = oracle(run, runs)
            if found is not None:
                return Flaw(run.wrong, f"{run.name}{found}") if isinstance(found, str) else found
    return None


_ODD = {
    "after": ("ordinary gradients after odd ones", "nan_stays_in_state"),
    "later": ("ordinary gradients after odd ones", "nan_stays_in_state"),
    "huge": ("gradients of up to 1e5", "overflow"),
}
"""By phase: the gradients in words, and what it means that their results are not finite."""


def finite(run: Run, _: Sequence[Run]) -> Flaw | None:
    """Finite gradients give finite results."""
    for step in run.steps:
        if step.phase == "nan" or math.isfinite(step.norm):
            continue
        given, kind = _ODD.get(step.phase, ("finite gradients", "nonfinite_result"))
        fix = None
        if not step.average.any():
            given, fix = "gradients of zeros", "look for a division by a norm or a range"
        count = int((~step.result.isfinite()).sum())
        what = f"{given} gave NaN or inf in {count} of {len(step.result)} elements"
        return Flaw(kind, f"{what} (step {step.number}, {run.name})", fix)
    return None


def nan_comes_out(run: Run, _: Sequence[Run]) -> Flaw | None:
    """A NaN of one rank is in the result of all."""
    if not any(step.average.isnan().any() and math.isfinite(step.norm) for step in run.steps):
        return None
    what = "a NaN went in on one rank and finite gradients came out on all"
    return Flaw("nan_hidden", f"{what}: neither a loss scaler nor the loss will show it")


def arrives(run: Run, _: Sequence[Run]) -> Flaw | str | None:
    """Of chosen gradients, a rank's come at all, and in the result of their own step."""
    if not run.of("fresh"):
        return None
    if not run.came:
        what = f"{run.name}: the result is zero in all of {len(run.active)} steps"
        return Flaw("ranks_missing", what)
    fresh = [step for step in run.came if step.phase == "fresh"]
    found = max((abs(cosine(*run.inner(s.result, s.average))) for s in fresh), default=1.0)
    by_chance = _CHANCE / math.sqrt(sum(run.lengths))
    what = ": nothing of a step's own gradients is in its result, in its own place"
    return f"{what} (cosine {found:.2g})" if found <= by_chance else None


def elements(run: Run, _: Sequence[Run]) -> str | None:
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
            what = ": an end of some parameters, or a whole one, never comes in"
            return f"{what} {len(run.came)} steps; its likes do in {max(rates):.0%} of them"
    return None


def weights(_: Run, runs: Sequence[Run]) -> Flaw | None:
    """Each rank's gradients weigh what they should, alone and together.

    A run may have two weights: of places that are chosen by chance, and scaled up, only the mean is
    right, and of kept elements each is.  If neither is right, one that has a name counts.
    """
    found = [(run, both) for run in runs if (both := _weights(run))]
    if all(any(both.values()) for _, both in found):
        return None
    kind, what = found[0][0].wrong, "the ranks' gradients do not weigh 1/n"
    shown = [_nearest(both, 1.0) for _, both in found]
    is_one = max(shown) - min(shown) <= _SAME * max(map(abs, shown))
    if is_one and not any(run.keeps for run, _ in found):
        kind, what = "wrong_scale", anomaly_kind("wrong_scale").sentence
    # FSDP asks for sums over a divisor, which is not always the number of ranks.
    factors = [
        {"wrong_sign": -1.0, "wrong_scale": run.divisor / run.ranks} | named_factors(run.divisor)
        for run, _ in found
    ]
    for name in factors[0]:
        dues = [factor[name] for factor in factors]
        near = [_nearest(both, due) for (_, both), due in zip(found, dues, strict=True)]
        pairs = zip(near, dues, strict=True)
        if set(dues) != {1.0} and all(math.isclose(one, due, rel_tol=ALIKE) for one, due in pairs):
            kind, what, shown = name, anomaly_kind(name).sentence, near
    parts = [f"{weight:.3g} ({run.name})" for weight, (run, _) in zip(shown, found, strict=True)]
    loss = f"by least squares gradients weigh {', '.join(parts)} times what they should"
    return Flaw(kind, f"{what}: {loss}")


def _nearest(both: Iterable[float], due: float) -> float:
    return min(both, key=lambda weight: abs(weight - due))


def _weights(run: Run) -> dict[float, bool]:
    """Return what a run's gradients weigh times what they should, and whether it is right.

    Nothing if its results are no multiple of them.

    If the hook keeps something: in the last step that owed nothing, or the first one that gave
    something.  Else in the mean of all steps, within chance.  No format's rounding adds more than
    0.6 %; truncation makes an element smaller by the square root of 3 times its deviation.
    """
    steps = run.came
    if run.keeps:
        steps = [step for step in steps if step.owed.norm() <= run.least][-1:] or steps[:1]
    if not steps:
        return {}
    fits = [fitted(*run.inner(step.result, run.meant(step))) for step in steps]
    scatter = statistics.fmean(fit[1] for fit in fits)
    is_free = run.keeps or run.rounds_by_chance or not run.wire.width
    most = math.inf if is_free else _CLEAN if run.wire.width == 1 else _ALMOST
    # A sum of several ranks' projections is no multiple.
    if not scatter <= (_ALMOST if run.who == "each" else most):
        return {}
    values = [[fit[0] for fit in fits]]
    if scatter > _CLEAN:
        values.append([projected(step.result, run.meant(step)) for step in steps])
    least = 0.015 if run.wire.width == 1 else _ALMOST
    least = min(least, run.tolerance) if scatter <= run.tolerance else least
    found = {}
    for each in values:
        spread = statistics.stdev(each) if len(each) > 1 else 0.0
        above = max(least, _CHANCE * spread / math.sqrt(len(each)))
        below = max(above, 1.6 * min(scatter, _CLEAN)) if run.wire.width == 1 else above
        weight = statistics.fmean(each)
        found[weight] = 1 - below <= weight <= 1 + above
    return found


def conserves(run: Run, _: Sequence[Run]) -> str | None:
    """Zeros give zeros, or a part of what is owed, with its sign, once, and nothing else.

    At the end a hook may hand on what it knows of older gradients, if it has given that much less
    of them before (EF21).
    """
    largest = max(step.average.norm().item() for step in run.active)
    for step in run.of("rest", "end"):
        if step.norm <= run.least:
            continue
        owed, shared = step.owed.norm().item(), float(step.result @ step.owed)
        paid, part = shared / (owed**2 or 1e-30), shared / step.norm**2
        # Of a full number the rest may be rounding.
        is_rounding = run.wire.width and step.norm <= run.tolerance * largest
        if _BACK <= paid <= _ONCE and (is_rounding or part >= _PART or step.phase == "end"):
            continue
        what = f", step {step.number}: all gradients are zeros, and the result "
        if owed <= run.least:
            return f"{what}is not, though nothing was left out of earlier steps"
        what += f"has {paid:.2g} times what earlier steps left out, which is {max(part, 0):.0%} of"
        return f"{what} it; residual = input - sent, and input = gradient + residual"
    return None


def explained(run: Run, _: Sequence[Run]) -> str | None:
    """A result is what is due, but for what its bytes lose, or a projection of it."""
    if not run.wire.width or run.rounds_by_chance:
        return None
    worst = max(run.active, key=run.error)
    if run.error(worst) <= run.tolerance:
        return None
    what = f", step {worst.number} ({worst.phase} gradients): the result is off by"
    why = f"where {run.wire.dtype} of every element explains {run.tolerance:.2g}"
    return f"{what} {worst.error:.2g} of the gradients' norm, {why}"


def compresses(run: Run, _: Sequence[Run]) -> Flaw | None:
    """A hook that leaves something out of a step, and pays it back later, sends less for it."""
    if not run.wire.width or run.is_fine or not run.keeps:
        return None
    what = f"it feeds back what it leaves out, and sends {run.wire.bits:.3g} bits an element"
    return Flaw("no_compression", f"{what} all the same")


def in_range(run: Run, _: Sequence[Run]) -> str | None:
    """Large gradients keep their direction, if all elements are sent.

    Clipping is right; what a cast does to a value that leaves its range is not.
    """
    for step in run.of("large") if run.wire.width else ():
        similar = cosine(step.result, step.average)
        if similar < _TURNED:
            what = f", step {step.number}: gradients reach 100, and the cosine of the result with"
            return f"{what} the average is {similar:.2g}; look at casts to integers"
    return None


ORACLES: tuple[Oracle, ...] = (
    *(finite, nan_comes_out, arrives, elements, weights, conserves),
    *(explained, compresses, in_range),
)
"""All, of which each asks about the phases that it is for."""

OF_LOSSY = tuple(one for one in ORACLES if one not in (elements, weights, explained))
"""Those for a hook that loses more of a step than its bytes explain, as chosen gradients showed."""
