"""What is asked of a hook's runs: a table of oracles, and the first that one fails is the verdict.

    runs --each of ORACLES, in order--> Flaw(kind, what, remedy), or None

| oracle      | a hook passes where                                                                |
| ----------- | ---------------------------------------------------------------------------------- |
| finite      | finite gradients give finite results                                               |
| same        | all ranks have the same results                                                    |
| arrives     | each rank's gradients come, in the step that they are of                           |
| elements    | every element comes, the first and the last of a parameter too                     |
| weights     | each rank's gradients weigh 1/n, by least squares                                  |
| pays_back   | zeros give a part of what is owed, once, and nothing else                          |
| repeats     | the same gradients give the same result, or each element one of two levels         |
| centred     | no level of a quantiser is added to all elements                                   |
| explained   | a result is what is due, but for what the bytes lose; or the rest comes later      |
| compresses  | a hook that leaves something out for later sends less for it                       |
| signs       | large gradients keep their signs, whatever clips them                              |

What a sparse hook (one that sends fewer values than there are elements) leaves out of a step is not
judged by itself: weights, elements and what it pays back are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch

from .runs import CHANCE, Run, Step, Weight, distance, dot

_ONCE = 1.3
"""Of what is owed: more is clearly more than once."""

_BACK = -0.3
_PART = 0.9
_SOME = 0.3
_FAR = 0.5
_NEARLY = 0.3
_NEVER = 1e-6
_ALIKE = 0.03
_LEVEL = 0.75
_TURNED = 0.25
"""Of the largest elements: integers that overflow turn a half."""

_OWN_NAME = "keep what is left out of each bucket or unit under its own name"

_DIVIDE = "divide the sum of all ranks once, by their number (or what FSDP asks for)"
_ADD = "add all values that ranks send for one place: an assignment by index keeps one of them"
FEED_BACK = "add what was left out once: residual = input - sent, where input = gradient + residual"


class Flaw(NamedTuple):
    """What is wrong: a ``kind`` of ``records.anomalies``, the sentence, and what to do."""

    kind: str
    what: str
    remedy: str


Oracle = Callable[[Sequence[Run]], Flaw | None]


def verdict(runs: Sequence[Run], oracles: Sequence[Oracle] | None = None) -> Flaw | None:
    """Return what the first oracle says that a hook's runs fail; ``None`` where they pass all."""
    for oracle in ORACLES if oracles is None else oracles:
        if (found := oracle(runs)) is not None:
            return found
    return None


def of_each(test: Callable[[Run], Flaw | None]) -> Oracle:
    """Return the oracle that asks each run by itself."""

    def first(runs: Sequence[Run]) -> Flaw | None:
        found = (test(run) for run in runs)
        return next((flaw for flaw in found if flaw is not None), None)

    return first


_ODD = {
    "rest": ("gradients of zeros", "nonfinite_result"),
    "end": ("gradients of zeros", "nonfinite_result"),
    "zeros": ("gradients of zeros", "nonfinite_result"),
    "huge": ("gradients of up to 1e5", "overflow"),
    "after": ("ordinary gradients after odd ones", "nan_stays_in_state"),
}
"""By phase: the gradients in words, and what it means that their results are not finite."""

_LOOK = {
    "nonfinite_result": "look at casts, and for a division by a norm or a range that can be 0",
    "overflow": "use bfloat16, or scale the gradients: float16 ends at 65504",
    "nan_stays_in_state": "keep what is not finite out of the hook's state",
}


def finite(run: Run) -> Flaw | None:
    """Finite gradients give finite results; those of ``nan`` are asked by ``nan_comes_out``."""
    for step in run.steps:
        if step.is_finite or step.phase == "nan":
            continue
        given, kind = _ODD.get(step.phase, ("finite gradients", "nonfinite_result"))
        count = int((~step.result.isfinite()).sum())
        what = f"{given} gave NaN or inf in {count} of {len(step.result)} elements"
        return Flaw(kind, f"{what} (step {step.number}, {run.name})", _LOOK[kind])
    return None


def nan_comes_out(run: Run) -> Flaw | None:
    """A NaN of one rank is in the result of all."""
    for step in run.of("nan"):
        if step.average.isnan().any() and step.is_finite:
            return Flaw(
                "nan_hidden",
                "a NaN went in on one rank and finite gradients came out on all: neither a loss "
                "scaler nor the loss will show it",
                "hand NaN on",
            )
    return None


def same(run: Run) -> Flaw | None:
    """All ranks have the same results."""
    if run.agrees:
        return None
    return Flaw(
        "replicas_diverge",
        f"{run.name}: the results are not the same on all ranks",
        "decode the same bytes in the same way on all ranks, this rank's own too; look for random "
        "numbers, and for sums in an order of the rank's own",
    )


def arrives(run: Run) -> Flaw | None:
    """A rank's gradients come at all, and in the result of their own step."""
    if not any(step.result.norm().item() > run.least for step in run.active):
        return Flaw(
            "ranks_missing",
            f"{run.name}: the result is zero in all of {len(run.active)} steps",
            "add what all ranks have sent, with each rank's own scale; look at the process group",
        )
    fits = [run.fit(step) for step in run.of("first", "fresh")]
    found = max((abs(fit.cosine) for fit in fits if math.isfinite(fit.scatter)), default=1.0)
    by_chance = CHANCE / math.sqrt(sum(run.lengths))
    if found > by_chance:
        return None
    return Flaw(
        run.wrong,
        f"{run.name}: nothing of a step's own gradients is in its result (cosine {found:.2g}, "
        f"where chance explains {by_chance:.2g})",
        "give the future of this step's own collective, and each value its own place: row i of an "
        "all-gather is rank i's",
    )


def elements(run: Run) -> Flaw | None:
    """All parameters of a length come as often, and the ends of all, which are the largest."""
    steps = [step for step in run.active if step.result.norm().item() > run.least]
    if not steps:
        return None
    return _never(run, steps) or _far(run, steps)


def _never(run: Run, steps: Sequence[Step]) -> Flaw | None:
    came = torch.stack([(step.result != 0) | (step.average == 0) for step in steps])
    by_length: dict[int, list[torch.Tensor]] = {}
    for part in came.split(run.lengths, 1):
        if part.shape[1]:
            by_length.setdefault(part.shape[1], []).append(part)
    whole = [[part.any(1) for part in parts] for parts in by_length.values()]
    ends = [torch.cat([part[:, i] for part in ps]) for ps in by_length.values() for i in (0, -1)]
    for group, what in (*((each, "a whole parameter") for each in whole), (ends, "an end")):
        rates = [places.double().mean().item() for places in group]
        if not min(rates) and (1 - max(rates)) ** len(group[0]) < _NEVER:
            return Flaw(
                run.wrong,
                f"{run.name}: {what} of some parameters never comes in {len(steps)} steps, where "
                f"its likes do in {100 * max(rates):.0f} % of them",
                "look at how the hook cuts a bucket into pieces, and at the last one",
            )
    return None


def _far(run: Run, steps: Sequence[Step]) -> Flaw | None:
    """The ends are far off in all steps, where the rest is not."""
    ends, bad = run.ends, torch.ones(len(run.ends), dtype=torch.bool)
    for step in steps:
        off = step.result - step.due
        if off.index_fill(0, ends, 0.0).norm() > _NEARLY * step.due.norm():
            return None
        bad &= off[ends].abs() > _FAR * step.due[ends].abs()
    if not bad.any() or not run.wire.is_bounded:
        return None
    place, last = int(ends[bad][0]), steps[-1]
    return Flaw(
        run.wrong,
        f"{run.name}: {int(bad.sum())} of the parameters' ends are wrong in all steps, such as "
        f"element {place} of {len(last.result)}: {last.result[place]:.3g} where "
        f"{last.due[place]:.3g} is due",
        "look at the last piece that a bucket is cut into, which may be shorter, and whether a "
        "quantiser's range reaches the largest element",
    )


def weights(runs: Sequence[Run]) -> Flaw | None:
    """Each rank's gradients weigh what they should, alone and together."""
    found = [(run, weight) for run in runs if (weight := run.weight) is not None]
    if all(weight.is_right for _, weight in found):
        return None
    kind, what = _named(found)
    parts = ", ".join(f"{weight.value:.3g} ({run.name})" for run, weight in found)
    return Flaw(
        kind,
        f"{what}: by least squares gradients weigh {parts} times what they should",
        _DIVIDE if kind != found[0][0].wrong else f"{_DIVIDE}; {_ADD}",
    )


def _named(found: Sequence[tuple[Run, Weight]]) -> tuple[str, str]:
    """Return the kind of wrong weights, and what that is; of all runs the same it is a factor."""
    for kind, what, factor in (
        ("not_averaged", "the sum of all ranks is not divided", lambda run: run.divisor),
        ("averaged_twice", "the sum of all ranks is divided twice", lambda run: 1 / run.divisor),
        ("wrong_scale", "the sum is divided by the ranks", lambda run: run.divisor / run.ranks),
        ("wrong_sign", "the result has the opposite sign", lambda run: -1.0),
    ):
        due = [factor(run) for run, _ in found]
        pairs = [(one, weight.value) for one, (_, weight) in zip(due, found, strict=True)]
        if set(due) != {1.0} and all(math.isclose(*pair, rel_tol=_ALIKE) for pair in pairs):
            return kind, what
    values, slack = [weight.value for _, weight in found], max(weight.above for _, weight in found)
    is_factor = max(values) - min(values) <= 2 * slack * max(map(abs, values))
    if is_factor and not any(run.keeps for run, _ in found):
        return "wrong_scale", "the result is the average times a factor"
    return found[0][0].wrong, "the ranks' gradients do not weigh 1/n"


def pays_back(run: Run, least: float = _PART) -> Flaw | None:
    """Zeros give zeros, or a part of what is owed, with its sign, once, and nothing else.

    ``least``: share of a result that is to be owed, where only one step was before; weights that
    are wrong take some of it.  Later a hook may hand on what it knows of older gradients, if it
    has given that much less of them before (EF21).
    """
    largest = max(step.average.norm().item() for step in run.active)
    for step in run.of("rest", "end"):
        norm, owed = step.result.norm().item(), step.owed.norm().item()
        if norm <= run.least:
            continue
        shared = dot(step.result, step.owed)
        paid, part = shared / (owed**2 or 1e-30), shared / norm**2
        # Of a full number the rest may be rounding.
        is_rounding = run.wire.is_bounded and norm <= run.tolerance * largest
        is_part = is_rounding or part >= least or step.phase == "end"
        if is_part and _BACK <= paid <= _ONCE:
            continue
        what = f"has {paid:.2g} times what earlier steps left out"
        if owed <= run.least:
            what = "is not, though nothing was left out of earlier steps"
        elif _BACK <= paid <= _ONCE:
            what += f", and only {max(part, 0.0):.0%} of it is that"
        return Flaw(
            run.wrong,
            f"{run.name}, step {step.number}: all gradients are zeros, and the result {what}",
            f"{FEED_BACK}; {_OWN_NAME}, and nothing else: momentum is the optimizer's",
        )
    return None


def repeats(run: Run) -> Flaw | None:
    """The same gradients give the same result, but for levels to which chance rounds.

    A sparse hook may choose places by chance; where it always sends the same ones, the same values.
    """
    if not run.by_chance:
        return None
    if not run.wire.is_bounded:
        came = run.repeats != 0
        if came.all() or (came != came[0]).any():
            return None
    if run.rounds_by_chance:
        return None
    spread = max(distance(result, run.repeats[0]) for result in run.repeats[1:])
    return Flaw(
        run.wrong,
        f"{run.name}: the same gradients give results that differ by {spread:.2g} of their norm, "
        "and not by one level of a quantiser",
        "look for random numbers, or for what the hook keeps from step to step",
    )


def centred(run: Run) -> Flaw | None:
    """No level of a quantiser is added to all elements; a level is what lies between two values."""
    if run.wire.kind != "byte":
        return None
    shifts, gaps = [], []
    for step in run.of("first", "fresh"):
        parts = step.result.split(run.lengths)
        longest = max(parts, key=len)
        gaps.append(longest.unique().diff().median().item() if len(longest.unique()) > 1 else 0.0)
        shifts.append((step.result - step.due).mean().item())
    levels = sum(shifts) / sum(gaps) if all(gaps) else 0.0
    if abs(levels) <= _LEVEL:
        return None
    return Flaw(
        run.wrong,
        f"{run.name}: {levels:+.2g} levels of the quantiser are added to all elements",
        "look at its zero point, and at how values are rounded",
    )


def explained(run: Run) -> Flaw | None:
    """A result is what is due, but for what its bytes lose, or a projection of it."""
    if not run.wire.is_bounded or run.rounds_by_chance:
        return None
    steps = [
        step
        for step in run.active
        if step.error > run.tolerance
        and not (run.keeps and abs(run.fit(step).of_projection - 1) <= _ALIKE)
    ]
    if not steps:
        return None
    worst = max(steps, key=lambda step: step.error)
    return Flaw(
        run.wrong,
        f"{run.name}, step {worst.number} ({worst.phase} gradients): the result is off by "
        f"{worst.error:.2g} of the gradients' norm, where {run.wire.words} explains "
        f"{run.tolerance:.2g}",
        "compare one bucket's result with the mean of the gradients; what a compression loses "
        "must be fewer bytes, or come with a later step",
    )


def compresses(run: Run) -> Flaw | None:
    """Whoever leaves something out of a step, and pays it back later, sends less for it."""
    if not run.wire.is_bounded or run.is_fine or not run.keeps:
        return None
    return Flaw(
        "no_compression",
        f"it feeds back what it leaves out, and sends {run.wire.bits:.3g} bits an element all the "
        "same",
        "send what was kept, in fewer bytes",
    )


def signs(run: Run) -> Flaw | None:
    """The larger elements of large gradients keep their signs, or do not come.

    Clipping is right; what a cast does to a value that leaves its range is not.  Of a projection,
    as a low rank, the signs need not be the same.
    """
    if not run.wire.is_bounded:
        return None
    for step in run.of("large"):
        parts = zip(step.result.split(run.lengths), step.due.split(run.lengths), strict=True)
        both = [(came, due) for came, due in parts if len(due)]
        kept = torch.cat(
            [(came * due >= 0)[2 * due.abs() >= due.abs().max()] for came, due in both]
        )
        turned = 1 - kept.double().mean().item()
        if turned > _TURNED:
            return Flaw(
                run.wrong,
                f"{run.name}, step {step.number}: {turned:.0%} of the larger elements come with "
                "the opposite sign where gradients reach 100",
                "look at casts to integers: clamp to their range, or scale by the largest element",
            )
    return None


ORACLES: tuple[Oracle, ...] = (
    of_each(finite),
    of_each(same),
    of_each(arrives),
    of_each(elements),
    of_each(partial(pays_back, least=_SOME)),
    weights,
    of_each(pays_back),
    of_each(repeats),
    of_each(centred),
    of_each(explained),
    of_each(compresses),
)
"""Those of the scenario ``arithmetic``; others ask some of them."""

FINITE: tuple[Oracle, ...] = (of_each(same), of_each(nan_comes_out), of_each(finite))
"""Those of any scenario, and of a hook that is known to lose more than can be judged by a step."""

ORDINARY: tuple[Oracle, ...] = (*FINITE, of_each(elements), weights, of_each(explained))
"""Those of ordinary gradients."""

OF_LARGE: tuple[Oracle, ...] = (*FINITE, of_each(signs))
"""Those of gradients that a hook may clip."""
