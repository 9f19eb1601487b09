"""Is what a step leaves out dealt with as error feedback should?  Tests of the case ``arithmetic``.

    Series --a test--> Flaw, or None

After gradients of zeros a hook pays back what is owed, at most once, and owes no more than before;
it adds nothing of its own; and a step's result has something of this step's gradients in it.
"""

from __future__ import annotations

from .causes import cause_of
from .series import TWICE, Flaw, Series, chance, paid_by, true_kind
from .steps import cosine, distance

_PART = 0.7
_BACK = -0.3
_GROWS = 1.1
_NO_MEMORY = 1e-5
_SAME = 1e-3


def arrives(series: Series) -> Flaw | None:
    """A step's result has something of its own gradients in it."""
    steps = series.of("impulse", "fresh")
    found = max(cosine(step.wide, step.average) for step in steps)
    if found > chance(series):
        return None
    what = (
        f"nothing of a step's own average is in its result (cosine {found:.2g}, where chance "
        f"explains {chance(series):.2g})"
    )
    remedy = (
        "give DDP the future of this step's own collective, and add what was left out once: "
        "residual = input - sent, where input = gradient + residual"
    )
    return Flaw(*cause_of(steps, what, remedy=remedy))


def adds_nothing(series: Series) -> Flaw | None:
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


def pays_back(series: Series) -> Flaw | None:
    """After zeros comes a part of what is owed and nothing else, and what is owed does not grow."""
    largest = max(step.average.norm().item() for step in series.steps)
    is_less = true_kind(series) == "less"
    for rest in series.of("rest after", "rest at last"):
        paid, norm = paid_by(rest), rest.wide.norm().item()
        if paid is None or norm <= _NO_MEMORY * largest:
            continue
        owed = rest.owed.norm().item()
        part = paid * (owed / norm) ** 2
        # Of a full number the rest may be rounding.
        is_else = is_less and part + chance(series) * owed / norm < _PART
        if is_else or paid > TWICE or paid < _BACK:
            return Flaw(
                f"step {rest.number}: all gradients are zeros, and the result has {paid:.2g} times "
                f"what earlier steps left out, which is {max(part, 0.0):.0%} of the result",
                "add what was left out once, with its own sign: residual = input - sent, where "
                "input = gradient + residual; momentum is the optimizer's",
            )
    last = series.of("rest at last")
    if len(last) > 1 and any(rest.wide.norm() > _NO_MEMORY * largest for rest in last):
        before, after = last[0].owed.norm().item(), last[-1].owed.norm().item()
        if after > _GROWS * before + _NO_MEMORY * largest:
            return Flaw(
                f"while gradients are zeros, all results together move away from all averages, "
                f"{after / max(before, 1e-30):.2g} times as far in {len(last) - 1} steps",
                "add what was left out once: residual = input - sent, where input = gradient + "
                "residual; momentum is the optimizer's",
            )
    return None
