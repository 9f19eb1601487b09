"""Do all ranks weigh 1/n?  Is each element a sum of all?  Tests of the case ``arithmetic``.

    gradients (n, numel), result --sum_of_some--> weights, and which ranks are in which element
    Series --a test--> Flaw, or None

What a rank's gradients weigh is fitted by least squares.  Of a hook that sends all elements: in all
of them, and in the largest, of which a format loses least.  Of others: element by element, where
each is a sum of some ranks' gradients; in what came up since an element was sent last; of what the
result is a projection; else in the sums of all steps.

A hook that sends a few elements, and keeps nothing for later, gives sums of some ranks' gradients,
times weights that are the same in all elements.  Where several ranks send one element, all their
values are in it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from .series import Series, comes_again, is_unbiased, rounds_by_chance, true_kind
from .steps import Flaw, Step, distance, fit, larger_parts

_EXPLAINED = 0.01
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

_DIVIDE = "divide the sum of all ranks by their number, and by nothing else"


_FEW_SAMPLES = 8.0
"""Standard deviations where a handful of samples says what one is."""

_UNEQUAL = 0.03
_UNEQUAL_LEVELS = 0.1
_UNEQUAL_PARTS = 0.02
_LEAST = 0.01
_EXACT = 1e-4
_GAIN = 0.015
"""Rounding to the nearest power of 1.4, which is off by 8 %, adds 0.6 %; no format adds more."""

_TRUNCATED = 2.0
"""Truncation to a level makes an element smaller by the square root of 3 times its deviation."""

_LARGEST = 1 / 32
_DROWNED = 3.0


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
    if distance(result, weights @ own) <= _EXPLAINED:
        return SumOfSome(weights, torch.ones_like(own))
    if len(own) > _MANY_RANKS:
        return None
    weights = torch.stack([_commonest(result / row) for row in own])
    chosen, left = _nearest(own, result, weights)
    _, by_chance = _nearest(own.roll(1, 1), result, weights)
    found = fit(chosen * own, result)
    if found is None or left > min(_EXPLAINED, _BY_CHANCE * by_chance):
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
    if ((times - middle).abs() < _EXPLAINED * middle).double().mean() < _MOSTLY:
        return None
    what = "where all ranks have the same gradients, the same elements arrive in each step, "
    ranks = len(last.gradients)
    some = round(middle * ranks)
    # Clipping makes them smaller by any factor.
    if 0 < some < ranks and abs(middle * ranks - some) < _EXPLAINED * ranks:
        return Flaw(f"{what}and in them {some} of {ranks} ranks' values", _ADD)
    if middle > 1 + 2 * _EXPLAINED:
        return Flaw(f"{what}{middle:.3g} times what they should be", _DIVIDE)
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
    for own, result in itertools.chain.from_iterable(map(larger_parts, steps)):
        if (found := sum_of_some(own, result)) is None:
            return None
        counts = found.chosen.sum(1)
        expected += (counts.sum() ** 2 - counts.square().sum()).item() / 2 / len(result)
        together += (found.chosen.sum(0) > 1).sum().item()
    if expected < _ENOUGH or together > _RARE * expected:
        return None
    return Flaw(
        f"no element is of several ranks in {len(steps)} steps, where ranks that choose places by "
        f"chance choose the same one about {expected:.0f} times",
        _ADD,
    )


class _Weights:
    """How much more than 1/n each rank weighs: the mean (n,) of several fits, and of all ranks.

    ``error``: of what the fits leave.
    """

    def __init__(self, rows: Sequence[torch.Tensor], error: float = 0.0) -> None:
        self._error = error
        weights = torch.stack(list(rows))
        samples = math.sqrt(len(rows)) / _FEW_SAMPLES
        self.each, self._chance = weights.mean(0), weights.std(0) / samples
        self.all = self.each.mean().item()
        self.chance = weights.mean(1).std().item() / samples

    def are_unequal(self, least: float) -> bool:
        """Return whether ranks differ by more than chance, and ``least``."""
        allowed = self._chance.clamp(min=least * abs(self.all))
        return bool(((self.each - self.all).abs() > allowed).any())

    def are_due(self) -> bool:
        """Return whether each is 1, but for chance."""
        is_off = abs(self.all - 1) > max(self.chance, _LEAST)
        return not is_off and not self.are_unequal(_UNEQUAL_PARTS)

    def gain(self) -> bool:
        """Return whether they are larger than levels to which values are rounded explain."""
        return self.all > 1 + max(self.chance, _GAIN)

    def lose(self) -> bool:
        """Return whether they are smaller than levels to which values are cut explain."""
        most = _LEAST + _TRUNCATED * math.sqrt(len(self.each)) * self._error
        return self.all < 1 - max(self.chance, most)

    def flaw(self, due: float = 1.0) -> Flaw:
        """Return what is said of them."""
        parts = ", ".join(f"{weight / due:.3g}" for weight in self.each.tolist())
        return Flaw(
            f"the ranks' gradients weigh {parts} times what they should, by least squares",
            _DIVIDE,
        )


def weighs_alike(series: Series) -> Flaw | None:
    """Ranks' gradients weigh the same, and 1/n where nothing is left out."""
    is_less = true_kind(series) == "less"
    if is_less and not rounds_by_chance(series):
        return _of_parts(series) or _in_the_long_run(series)
    small, fresh = _fitted(series.of("small")), _fitted(series.of("fresh"))
    if small is not None and (small.are_unequal(_UNEQUAL) or small.gain()):
        return small.flaw()
    # Clipping makes larger gradients smaller, and nothing larger.
    if fresh is not None and fresh.gain():
        return fresh.flaw()
    largest = _fitted(series.of("small"), _LARGEST)
    return largest.flaw() if largest is not None and largest.lose() else None


def _fitted(steps: Sequence[Step], share: float = 1.0) -> _Weights | None:
    """Return what ranks weigh in that share of the elements, the largest ones."""
    rows, errors = [], []
    for step in steps:
        extra = step.owed[None] if step.owed.any() else step.gradients[:0]
        columns = torch.cat([step.gradients, extra])
        numel = columns.shape[1]
        count = min(numel, max(int(share * numel), 16 * len(columns)))
        places = step.average.abs().topk(count).indices
        columns, result = columns[:, places], step.wide[places]
        if (found := fit(columns, result)) is not None:
            errors.append(((found @ columns - result).norm() / step.average[places].norm()).item())
            rows.append(found[: len(step.gradients)] * len(step.gradients))
    # What larger steps left out may come with a small one, and drown it.
    most = _DROWNED * sorted(errors)[(len(errors) - 1) // 2] if errors else 0.0
    near = [row for row, error in zip(rows, errors, strict=True) if error <= most]
    return _Weights(near, most / _DROWNED) if len(near) > 1 else None


def _of_parts(series: Series) -> Flaw | None:
    """Element by element: ranks weigh 1/n, or by how much more rarely chance lets them be sent."""
    rows, rare, whole = [], [], True
    for step in series.of("small"):
        for own, result in larger_parts(step):
            if (found := sum_of_some(own, result)) is not None:
                rows.append(found.weights * len(own))
                rare.append(rows[-1] * found.chosen.sum(1) / len(result))
                whole = whole and bool(found.chosen.all() and result.all())
    if len(rows) < 2:
        return None
    weights, same = _Weights(rows), series.of("same")
    is_fixed = whole or all(step.wide.equal(same[0].wide) for step in same)
    if weights.are_due():
        return None
    if is_fixed:
        return weights.flaw()
    by_chance = _Weights(rare)
    return None if by_chance.are_due() else by_chance.flaw()


def _in_the_long_run(series: Series) -> Flaw | None:
    """Of what has come up since an element was sent last all arrives; else ranks are equal."""
    paid, projected = _since_sent(series.steps[2:]), _projected(series)
    if exact := paid or projected:
        weights = _Weights(exact)
        if weights.are_unequal(_UNEQUAL_PARTS):
            return weights.flaw(weights.all)
        # A factor makes up for what chance leaves out, where nothing is paid later.
        is_off = weights.gain() and (paid or not is_unbiased(series))
        return weights.flaw() if is_off else None
    # Nothing pays back what few levels lose, which depends on the size of a rank's gradients.
    is_biased = not any(step.wide.any() for step in series.of("rest after"))
    steps = series.of("fresh", "small") if is_biased else [_sum_of(series.steps)]
    rows = [row for step in steps for row in _weights_of_parts(step)]
    if len(rows) < 2:
        return None
    weights = _Weights(rows)
    least = _UNEQUAL_LEVELS if is_biased else _UNEQUAL
    return weights.flaw(weights.all) if weights.are_unequal(least) else None


def _since_sent(steps: Sequence[Step]) -> list[torch.Tensor]:
    """Return the weights with which a step pays all that came up at a place since it was sent.

    None of them where ranks send places of their own, or clip.
    """
    rows = []
    due = torch.zeros_like(steps[0].gradients)
    was_sent = torch.zeros(due.shape[1], dtype=torch.bool)
    for step in steps:
        due += step.gradients
        came = step.wide != 0
        columns, result = due[:, came & was_sent], step.wide[came & was_sent]
        weights = fit(columns, result)
        if weights is not None and distance(result, weights @ columns) <= _EXPLAINED:
            rows.append(weights * len(due))
        due[:, came] = 0
        was_sent |= came
    return rows if len(rows) > len(steps) / 5 else []


def _projected(series: Series) -> list[torch.Tensor]:
    """Return the weights of what a result y is a projection of, as of low ranks that keep nothing.

    Of a projection y of sum w g, <y, y> is sum w <g, y>: an equation for each parameter and step.
    """
    rows = []
    for phase in ("fresh", "small"):
        parts = [
            own @ result / (result @ result)
            for step in series.of(phase)
            for own, result in larger_parts(step)
            if result.any()
        ]
        columns = torch.stack(parts, 1) if parts else torch.empty(1, 0)
        ones = torch.ones(len(parts), dtype=torch.float64)
        weights = fit(columns, ones)
        if weights is not None and distance(weights @ columns, ones) <= _EXACT:
            rows.append(weights * len(columns))
    return rows if len(rows) > 1 else []


def _sum_of(steps: Sequence[Step]) -> Step:
    some = [step for step in steps if step.phase != "alike"]
    result = torch.stack([step.wide for step in some]).sum(0)
    gradients = torch.stack([step.gradients for step in some]).sum(0)
    return replace(some[-1], result=result, gradients=gradients)


def _weights_of_parts(step: Step) -> list[torch.Tensor]:
    """Return how much more than 1/n each rank weighs, (n,), in each of the larger parameters."""
    found = [fit(own, result) for own, result in larger_parts(step)]
    return [weights * len(weights) for weights in found if weights is not None]
