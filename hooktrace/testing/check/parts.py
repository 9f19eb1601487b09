"""Of which ranks' gradients is each element a sum?  Tests of what sparse hooks give.

    gradients (n, numel), result --sum_of_some--> weights, and which ranks are in which element
    Series --a test--> Flaw, or None

A hook that sends a few elements, and keeps nothing for later, gives sums of some ranks' gradients,
times weights that are the same in all elements.  Where several ranks send one element, all their
values are in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch

from .series import Flaw, Series, comes_again
from .steps import Step, distance, fit

EXPLAINED = 0.01
_BY_CHANCE = 0.1
_MANY_RANKS = 8
_ALWAYS = 5.0
_ENOUGH = 20
_MOSTLY = 0.5
_RARE = 0.05
_ADD = (
    "add all values that ranks send for one place (index_add_, scatter_add_): an assignment by "
    "index keeps one of them"
)

DIVIDE = "divide the sum of all ranks by their number, and by nothing else"


class SumOfSome(NamedTuple):
    """``weights``: (n,).  ``chosen``: (n, elements that are not zero), 1 where a rank is in."""

    weights: torch.Tensor
    chosen: torch.Tensor


def sum_of_some(own: torch.Tensor, result: torch.Tensor) -> SumOfSome | None:
    """Return of which ranks' gradients (n, numel) elements that are not zero are sums, if so."""
    came = result != 0
    own, result = own[:, came], result[came]
    weights = fit(own, result)
    if weights is None:
        return None
    if distance(result, weights @ own) <= EXPLAINED:
        return SumOfSome(weights, torch.ones_like(own))
    if len(own) > _MANY_RANKS:
        return None
    weights = torch.stack([_commonest(result / row) for row in own])
    chosen, left = _nearest(own, result, weights)
    _, by_chance = _nearest(own.roll(1, 1), result, weights)
    found = fit(chosen * own, result)
    if found is None or left > min(EXPLAINED, _BY_CHANCE * by_chance):
        return None
    return SumOfSome(found, chosen)


def _nearest(
    own: torch.Tensor, result: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, float]:
    """Return the choice (n, numel) of ranks that comes nearest, and its distance."""
    every = [choice for choice in itertools.product((0.0, 1.0), repeat=len(own)) if any(choice)]
    choices = torch.tensor(every, dtype=own.dtype)
    chosen = choices[((choices * weights) @ own - result).abs().argmin(0)].T
    return chosen, distance(result, weights @ (chosen * own))


def _commonest(ratios: torch.Tensor) -> torch.Tensor:
    """Return the number around which the ratios are densest."""
    ordered = ratios[ratios.isfinite()].sort().values
    count = max(4, len(ordered) // 32)
    low, high = ordered[:-count], ordered[count:]
    return ordered[int(((high - low) / (high + low).abs()).argmin()) + count // 2]


def larger_parts(
    gradients: torch.Tensor, result: torch.Tensor, lengths: Sequence[int]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the gradients (n, numel) and the result (numel,) of each of the larger parameters."""
    parts = zip(gradients.split(lengths, 1), result.split(lengths), strict=True)
    return [(own, part) for own, part in parts if len(part) >= max(lengths)]


def adds_all_ranks(series: Series) -> Flaw | None:
    """Where ranks with the same gradients send the same elements, all of each arrives, once."""
    steps = series.of("alike")
    came = torch.stack([step.wide != 0 for step in steps])
    always = came.all(0)
    by_chance = came.double().mean().item() ** len(steps) * always.numel()
    if int(always.sum()) <= _ALWAYS * by_chance + _ENOUGH:
        return None
    last = steps[-1]
    times = last.wide[always] / last.average[always]
    middle = times.median().item()
    if ((times - middle).abs() < EXPLAINED * middle).double().mean() < _MOSTLY:
        return None
    what = "where all ranks have the same gradients, the same elements arrive in each step, "
    ranks = len(last.gradients)
    some = round(middle * ranks)
    # Clipping makes them smaller by any factor.
    if 0 < some < ranks and abs(middle * ranks - some) < EXPLAINED * ranks:
        return Flaw(f"{what}and in them {some} of {ranks} ranks' values", _ADD)
    if middle > 1 + 2 * EXPLAINED:
        return Flaw(f"{what}{middle:.3g} times what they should be", DIVIDE)
    return None


def repeats_values(series: Series) -> Flaw | None:
    """Where always the same elements arrive, and nothing is kept, the same values do, or levels."""
    same = series.of("same")
    first = same[0].wide
    if first.all() or any(step.wide.any() for step in series.of("rest after")):
        return None
    if any(not (step.wide != 0).equal(first != 0) for step in same) or comes_again(same):
        return None
    spread = max(distance(step.wide, first) for step in same[1:])
    return Flaw(
        f"the same gradients give the same elements, with values that differ by {spread:.2g}",
        "look for random numbers, or for what the hook keeps from step to step",
    )


def keeps_all_values(series: Series) -> Flaw | None:
    """Where ranks choose places by chance, some choose the same, and both values arrive."""
    steps = series.of("fresh", "same")
    # A fixed number of places, of one rank each, may be meant so.
    if len({int((step.wide != 0).sum()) for step in steps}) == 1:
        return None
    expected = together = 0.0
    for step in steps:
        found = _meetings(step)
        if found is None:
            return None
        expected, together = expected + found[0], together + found[1]
    if expected < _ENOUGH or together > _RARE * expected:
        return None
    return Flaw(
        f"no element is of several ranks in {len(steps)} steps, where ranks that choose places by "
        f"chance choose the same one about {expected:.0f} times",
        _ADD,
    )


def _meetings(step: Step) -> tuple[float, float] | None:
    """Return how many elements are of several ranks: by chance, and in fact."""
    expected = together = 0.0
    for own, result in larger_parts(step.gradients, step.wide, step.lengths):
        if (found := sum_of_some(own, result)) is None:
            return None
        counts = found.chosen.sum(1)
        expected += (counts.sum() ** 2 - counts.square().sum()).item() / 2 / len(result)
        together += (found.chosen.sum(0) > 1).sum().item()
    return expected, together
