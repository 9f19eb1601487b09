"""Which ranks' gradients a hook's result is the average of, and how many times: ``cause_of``.

    result x (k,), gradients of n ranks G (k, n) --least squares--> weights c, e = x - G c
    ranks S: all, else those whose weights are half of the largest or more --Ray--> Cause

A pure function of samples.  With h the average of S's columns, s = <x, h> / |h|^2, d = x - s h,
and q the average of their magnitudes times |s|, by which rounding moves an element by eps:

    a sum of gradients              |e|^2 <= 1e-3 |x|^2
    s times the average of S        |d|^2 <= |e|^2 (1 + 36 n / (k - n)) + b^2, and in all parts
                                    b = 2 |e|^2 / |x| + eps |q h| / |h|
    s is close to a number within   t = (6 |d h / (1 - l)| / |h| + b) / |h|, l_i = h_i^2 / |h|^2
    s is far from a number beyond   T = (10 |d| + eps |q h| / |h|) / |h|

t takes d for chance, in the form that White's variance with MacKinnon's correction (HC3) has for
elements of unlike sizes.  Quantisation leaves something near to chance.  What other compression
leaves may lie in the very direction that is asked about.  So what is *claimed* has to hold within
t, and what has to be *ruled out* must be beyond T: between the two nothing is said.

Least squares listens to the largest elements.  So s must hold in each sixteenth of the sample, from
the smallest gradients to the largest, where other ranks have no part: a clamp moves only the
largest, and a hook that averages only some of the parameters leaves the others as they were.  Where
ranks are missing their average must have no part: weights too small to be seen may add up.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch

_UNEXPLAINED = 1e-3
_CHANCE = 6.0
_SYSTEMATIC = 10.0
HARMLESS = 0.02
"""A factor so close to 1 does no harm, whatever it comes from."""

_SMALL = 0.25
"""A weight of at most this share of the largest is another's noise."""

_SWALLOWED = 30
_PARTS = 16
_PART_CHANCE = 3.0
_EPS = torch.finfo(torch.float32).eps
"""Of samples, which travel as float32."""

CauseKind = Literal["average", "factor", "some", "other", "unknown"]


class Cause(NamedTuple):
    """What a result is: ``factor`` times the average, or times that of ``ranks``.

    ``kind``: ``average`` where it is the average or may well be; ``factor`` and ``some`` (of the
    ranks) where that is ruled out; ``other`` where it is none of these; ``unknown`` where samples
    of this kind tell nothing.  ``tight``: t of the factor.  ``sure``: every rank is known to be in
    the result.
    """

    kind: CauseKind
    factor: float = math.nan
    tight: float = math.inf
    ranks: tuple[int, ...] = ()
    sure: bool = False


class Ray:
    """A result as so many times the average of the ranks ``taken``: the module's formulas.

    ``left``: |e|.
    """

    def __init__(
        self, x: torch.Tensor, g: torch.Tensor, taken: torch.Tensor, eps: float, left: float
    ) -> None:
        self._x, self._g, self._taken, self._eps, self._left = x, g, taken, eps, left
        self._along = g[:, taken].mean(1)
        length = float(self._along.norm())
        unit = self._along / length
        self.factor = float(x @ unit) / length
        self._rounded = (eps + 4 * _EPS) * abs(self.factor) * g[:, taken].abs().mean(1)
        self._beside = beside = x - self.factor * self._along
        rounding = float((self._rounded * unit).norm())
        self._bias = 2 * left**2 / float(x.norm()) + rounding
        # What is left at an element that decides by itself has been fitted away (HC3).
        chance = _CHANCE * float((beside * unit / (1 - unit.square()).clamp(min=1e-12)).norm())
        self.tight = (chance + self._bias) / length
        self.wide = (_SYSTEMATIC * float(beside.norm()) + rounding) / length

    def of(self, taken: torch.Tensor) -> Ray:
        """Return the same result by the average of other ranks."""
        return Ray(self._x, self._g, taken, self._eps, self._left)

    @property
    def fits(self) -> bool:
        """Whether weights of all ranks' own explain no more than by chance."""
        samples, size = self._g.shape
        chance = self._left * math.hypot(1, _CHANCE * math.sqrt(size / (samples - size)))
        return float(self._beside.norm()) <= math.hypot(chance, self._bias)

    def is_alone(self) -> bool:
        """Return whether the other ranks' average is known to have no part: many add up."""
        other = self._g[:, ~self._taken].mean(1)
        other = other - (other @ self._along) / self._along.square().sum() * self._along
        size = float(other.norm())
        unit = other / size
        chance = _PART_CHANCE * float((self._beside * unit).norm())
        off = chance + 4 * _EPS * float((self._x * unit).norm())
        return abs(float(self._beside @ unit)) <= off <= _SMALL * size * abs(self.factor)

    def holds_in_all_parts(self) -> bool:
        """Return whether the same multiple, and no other ranks, fit small gradients and large."""
        main = self.factor * self._along
        given = main[:, None]
        if not self._taken.all():
            given = torch.stack([main, self._g[:, ~self._taken].mean(1)], 1)
        for rows in self._g.abs().sum(1).argsort().tensor_split(_PARTS):
            x, h, columns = self._x[rows], main[rows], given[rows]
            best = torch.linalg.lstsq(columns, x[:, None], driver="gelsy").solution[:, 0]
            left, size = float((x - columns @ best).norm()), columns.shape[1]
            chance = left * math.hypot(1, _PART_CHANCE * math.sqrt(size / max(1, len(x) - size)))
            floor = float(self._rounded[rows].norm()) + HARMLESS * float(h.norm())
            if float((x - h).norm()) > chance + floor:
                return False
        return True


def cause_of(result: torch.Tensor, gradients: torch.Tensor, eps: float) -> Cause:
    """Return what a hook's result is of the ranks' own gradients.

    ``result``: (k,).  ``gradients``: (n, k), of each rank at the same places.  ``eps``: of the
    dtype in which they were averaged.
    """
    x, g = result.double(), gradients.double().T
    if not (_can_be_told(g, eps) and x.isfinite().all()):
        return Cause("unknown")
    if not x.any():
        return Cause("other", 0.0)
    norms = g.norm(dim=0)
    weights = torch.linalg.lstsq(g / norms, x[:, None], driver="gelsd").solution[:, 0] / norms
    left = float((x - g @ weights).norm())
    if left**2 > _UNEXPLAINED * float(x.square().sum()):
        return Cause("other")
    everyone = Ray(x, g, torch.ones(len(weights), dtype=torch.bool), eps, left)
    return _of_all(everyone, len(weights)) if everyone.fits else _of_some(everyone, weights.abs())


def _of_all(everyone: Ray, size: int) -> Cause:
    """Return the cause of a multiple of all ranks' average."""
    factor, tight = everyone.factor, everyone.tight
    if abs(factor - 1) <= max(everyone.wide, HARMLESS):
        return Cause("average", factor, tight)
    if abs(factor) <= everyone.wide or not everyone.holds_in_all_parts():
        return Cause("other")
    sure = not any(everyone.of(others).fits for others in ~torch.eye(size, dtype=torch.bool))
    return Cause("factor", factor, tight, tuple(range(size)), sure)


def _of_some(everyone: Ray, sizes: torch.Tensor) -> Cause:
    """Return the cause of another sum; ``sizes``: of the ranks' weights."""
    taken = sizes >= sizes.max() / 2
    if taken.all() or sizes[~taken].max() > _SMALL * sizes.max():
        return Cause("other")
    ray = everyone.of(taken)
    if not (ray.fits and ray.is_alone() and ray.holds_in_all_parts()):
        return Cause("other")
    ranks = tuple(taken.nonzero().flatten().tolist())
    return Cause("some", ray.factor, ray.tight, ranks)


def _can_be_told(g: torch.Tensor, eps: float) -> bool:
    """Return whether the weights of gradients (k, n) can be fitted at all."""
    samples, size = g.shape
    if size < 2 or samples < 4 * size or not g.isfinite().all():
        return False
    norms = g.norm(dim=0)
    # A gradient that rounding swallows cannot be told from one that is missing.
    return bool((norms > _SWALLOWED * max(eps, _EPS) * norms.max()).all())
