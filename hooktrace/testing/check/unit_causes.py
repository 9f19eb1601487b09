"""What is wrong with a hook of FSDP's collectives: pure functions of what it gave.

    Scattered --wrong_sum--> UnitFlaw, or None      the sum over ranks / divisor, all elements of it
    Gathered --wrong_whole--> UnitFlaw, or None     each rank's parameters in its place

A result is right within what its wire format loses (``wire_format.py``).  Of one that is not it is
asked whose numbers are in it, how often (least squares), and which elements at the ends are not.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from .steps import distance, fit
from .unit_calls import Gathered, Scattered
from .wire_format import WireFormat

_LOST = 0.5
"""Of an element at an end, which is as large as any."""

_EXPLAINED = 0.1
_ALIKE = 0.05
_ABSENT = 0.25

_DIVIDE = "divide by reduction.divisor, once, and by nothing else: FSDP asks for what it needs"
_PAD = "look at how the part is cut into channels, and at the last one, which may be shorter"


class UnitFlaw(NamedTuple):
    """Something wrong; ``kind``: of ``records.anomalies``."""

    kind: str
    what: str
    remedy: str


def wrong_sum(call: Scattered, wire: WireFormat) -> UnitFlaw | None:
    """Return what is wrong with a reduce-scatter of finite gradients."""
    result, expected, part = call.result, call.expected, len(call.result)
    if not result.isfinite().all():
        what = f"finite gradients of {call.numel} elements gave {_bad(result)}"
        return UnitFlaw("nonfinite_result", what, "look at casts, and at divisions by a range")
    if not expected.any():
        what = f"gradients of zeros gave up to {result.abs().max().item():.2g}"
        return UnitFlaw("wrong_gradients", what, "give zeros for zeros") if result.any() else None
    ends, off = _wrong_ends(result, expected), distance(result, expected)
    if off <= wire.tolerance(call.columns, call.dtype) and not ends:
        return None
    factors = fit(call.columns, result)
    if factors is not None:
        left = distance(result, factors @ call.columns)
        named = _named(factors * call.divisor, call.divisor) if left <= _EXPLAINED else None
        if named is not None:
            return named
    if ends:
        return UnitFlaw("wrong_gradients", f"of a part of {part} elements {ends}", _PAD)
    return UnitFlaw(
        "wrong_gradients",
        f"a part of {part} elements is {off:.2g} of its norm away from the sum over ranks / "
        f"{call.divisor:g}, which {wire.words} does not explain",
        "compare the result with the sum of what all ranks have for this part",
    )


def wrong_whole(call: Gathered, wire: WireFormat, rank: int) -> UnitFlaw | None:
    """Return what is wrong with an all-gather of finite parameters, as one rank sees it."""
    result, expected = call.result, call.expected
    part = expected.shape[1]
    if not result.isfinite().all():
        what = f"finite parameters of {part} elements a rank gave {_bad(result)}"
        return UnitFlaw("nonfinite_result", what, "write all of gathering.whole, from every rank")
    off = [distance(row, due) for row, due in zip(result, expected, strict=True)]
    explained = [wire.tolerance(due[None], call.dtype) for due in expected]
    for place, (row, due) in enumerate(zip(result, expected, strict=True)):
        ends = _wrong_ends(row, due)
        if off[place] <= explained[place] and not ends:
            continue
        others = [i for i, one in enumerate(expected) if i != place]
        taken = next((i for i in others if distance(row, expected[i]) <= explained[i]), None)
        if due.any() and taken is not None:
            what = f"in the place of rank {place}'s parameters there are rank {taken}'s"
            remedy = "row i of an all-gather is rank i's, and so is row i of gathering.whole"
        elif ends:
            what, remedy = f"of rank {place}'s {part} parameters {ends}", _PAD
        else:
            what = (
                f"rank {place}'s {part} parameters are {off[place]:.2g} of their norm off, which "
                f"{wire.words} does not explain"
            )
            remedy = "compare gathering.whole with what all ranks have given"
        return UnitFlaw("wrong_parameters", what, remedy)
    lossy = [place for place in range(len(off)) if place != rank and off[place] > 0]
    if off[rank] == 0 and len(lossy) == len(off) - 1 > 0:
        return UnitFlaw(
            "replicas_diverge",
            f"rank {rank} keeps its own parameters as they are, and decodes the others', so that "
            "each rank computes with another model",
            "decode this rank's own row of the all-gather too",
        )
    return None


def _named(shares: torch.Tensor, divisor: float) -> UnitFlaw | None:
    """Return what weights of the ranks in a sum mean, which should be 1."""
    ranks = len(shares)
    largest = shares.abs().max().item()
    missing = [place for place, share in enumerate(shares) if share.abs() < _ABSENT * largest]
    if missing:
        names = ", ".join(map(str, missing))
        what = f"the gradients of rank(s) {names} are not in this rank's part"
        return UnitFlaw("ranks_missing", what, "add what all ranks have sent, this one too")
    times = shares.mean().item()
    if (shares - times).abs().max() > _ALIKE * abs(times) or abs(times - 1) <= _ALIKE:
        return None
    kinds = {
        divisor: ("not_averaged", f"is the sum over ranks, which is not divided by {divisor:g}"),
        1 / divisor: ("averaged_twice", f"is the sum over ranks, divided by {divisor:g} twice"),
        divisor / ranks: ("wrong_scale", f"is divided by the {ranks} ranks, not by {divisor:g}"),
    }
    kind = "wrong_sign" if times < 0 else "wrong_scale"
    otherwise = kind, f"is {times:.3g} times the sum over ranks / {divisor:g}"
    near = (known for factor, known in kinds.items() if math.isclose(times, factor, rel_tol=_ALIKE))
    kind, what = next(near, otherwise)
    return UnitFlaw(kind, f"the result {what}", _DIVIDE)


def _wrong_ends(result: torch.Tensor, expected: torch.Tensor) -> str:
    """Return which elements at the ends are not what they should be, in words; none for ``""``."""
    if not len(result) or not expected.any():
        return ""
    wrong = (result - expected).abs() > _LOST * expected.abs()
    for word, flags, place in (("last", wrong.flip(0), -1), ("first", wrong, 0)):
        if not flags[0] or expected[place].abs() < _LOST * expected.abs().max():
            continue
        count = len(flags) if flags.all() else int(flags.long().argmin())
        which = f"the {word} one is" if count == 1 else f"the {word} {count} are"
        got, due = result[place].item(), expected[place].item()
        return f"{which} wrong: {got:.3g} in the place of {due:.3g}"
    return ""


def _bad(result: torch.Tensor) -> str:
    nan, inf = int(result.isnan().sum()), int(result.isinf().sum())
    return f"{nan} NaN and {inf} inf among {result.numel()} elements"
