"""Which sum of the ranks' own gradients a hook's result is, and how well that is known.

    result x (k,), gradients of n ranks G (k, n) --Fit--> x = G c + e --cause_of--> Cause

A pure function of samples.  With c by least squares, e what it leaves and A = G'G:

    explained     |e|^2 <= 1e-3 |x|^2, else the result is no sum of these gradients
    a pattern p   c = s p: the average p = 1/n, one rank alone, the average of some ranks;
                  h = G p, s = <x, h> / |h|^2, d = x - s h, l_i = h_i^2 / |h|^2
    rounding      f = 4 eps(float32) |q| + eps(dtype) |q h| / |h|, with q = |G| |c| by element
    bias          b = 2 |e|^2 / |x| + f
    fits          |d|^2 - |e|^2 <= (6 |e|)^2 / (K/n - 1) + b^2, for K elements that count (below)
    s is close to a number within   t = (6 |d h / (1 - l)| / |h| + b) / |h|
    s is far from a number beyond   T = (10 |e| sqrt(k / (k - n)) + f) / |h|
    a weight is known to within     the same, with 1 / sqrt((A^-1)_rr) in place of |h|

t takes d for chance, in the form that White's variance with MacKinnon's correction (HC3) has for
elements of unlike sizes; K = (sum w)^2 / sum w^2 is the number of elements that count, w the
squared sizes of G's rows, each rank's norm being 1.  Quantisation leaves something near to chance.
What other compression leaves may lie in the very direction that is asked about.  So whatever has to
be *ruled out* has to be ruled out by T, ten times all that is left, and what is *claimed* has to
hold within t: between the two nothing is said.  Where ranks' gradients are alike A is nearly
singular: single weights are unknown, and the factor of their average is not.

Least squares listens to the largest elements.  A pattern must hold in each sixteenth of the sample
too, from the smallest gradients to the largest: a clamp moves only the largest, and a hook that
averages only some of the parameters leaves the others as they were.  Where ranks are missing, their
average is tried beside the pattern: weights that are each too small to be seen may add up.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Literal, NamedTuple

import torch

_UNEXPLAINED = 1e-3
_CHANCE = 6.0
_SYSTEMATIC = 10.0
HARMLESS = 0.02
"""A factor so close to 1 does no harm, whatever it comes from."""

_SMALL = 0.25
"""A weight of at most this share of the largest, at the end of its interval, is another's noise."""

_SWALLOWED = 30
_SINGULAR = 1e-13
_PARTS = 16
_PART_CHANCE = 3.0
_EPS = torch.finfo(torch.float32).eps
"""Of samples, which travel as float32."""

CauseKind = Literal["average", "factor", "some", "uneven", "other", "unknown"]


class Cause(NamedTuple):
    """What a result is: ``factor`` times the average, or times that of ``ranks``.

    ``kind``: ``average`` where it is the average or may well be; ``factor``, ``some`` (of the
    ranks) and ``uneven`` (weights) where that is ruled out; ``other`` where it is none of these, or
    no one pattern; ``unknown`` where samples of this kind tell nothing.  ``tight`` and ``wide``: t
    and T of the factor.  ``sure``: every rank is known to be in the result.  ``weights``: of each
    rank's gradient times the number of ranks, 1 in an average, with how far each may be off.
    """

    kind: CauseKind
    factor: float = math.nan
    tight: float = math.inf
    wide: float = math.inf
    ranks: tuple[int, ...] = ()
    sure: bool = False
    weights: tuple[tuple[float, float], ...] = ()


class Ray(NamedTuple):
    """A result as multiples of a pattern: the factor, t and T of the module's formulas."""

    factor: float
    tight: float
    wide: float
    fits: bool


class Fit:
    """The least squares fit of a result by gradients, float64; ``eps``: of the bucket's dtype."""

    def __init__(self, result: torch.Tensor, gradients: torch.Tensor, eps: float) -> None:
        self._x, self._g = result, gradients
        self._samples, size = gradients.shape
        norms = gradients.norm(dim=0)
        unit = gradients / norms
        values, vectors = torch.linalg.eigh(unit.T @ unit)
        known = values > size * _SINGULAR
        along = vectors.T @ (unit.T @ result)
        self.weights = vectors @ (along / values).where(known, 0.0) / norms
        rounded = gradients.abs() @ self.weights.abs()
        self._arithmetic = 4 * _EPS * float(rounded.norm())
        self._rounded = eps * rounded
        self._norm = float(result.norm())
        self._left = float((result - gradients @ self.weights).norm())
        self._wide = _SYSTEMATIC * self._left * _shrunk(self._samples, size) + self._rounding(unit)
        spread = vectors.square() @ (1 / values.where(known, 1e-60))
        self.widths = self._wide * spread.sqrt() / norms

    def _rounding(self, unit: torch.Tensor) -> float:
        """Return how far rounding to the dtype may move the result along columns of length 1."""
        return self._arithmetic + float((self._rounded[:, None] * unit).norm(dim=0).max())

    @property
    def explained(self) -> bool:
        """Whether the result is a sum of the gradients but for little."""
        return self._left**2 <= _UNEXPLAINED * self._norm**2

    def ray(self, pattern: torch.Tensor) -> Ray:
        """Return the result as multiples of the gradients' sum with the weights ``pattern``."""
        along = self._g @ pattern
        length = float(along.norm())
        if length <= 4 * _EPS * float((self._g.abs() @ pattern).norm()):
            return Ray(math.nan, math.inf, math.inf, fits=False)
        unit = along / length
        times = float(self._x @ unit)
        beside = self._x - times * unit
        bias = 2 * self._left**2 / self._norm + self._rounding(unit[:, None])
        # What is left at an element that decides by itself has been fitted away (HC3).
        left = beside / (1 - unit.square()).clamp(min=1e-12)
        chance = _CHANCE * float((left * unit).norm())
        stray = _CHANCE**2 * float(self._left**2) / self._free + bias**2
        fits = float(beside.norm()) ** 2 - self._left**2 <= stray
        return Ray(times / length, (chance + bias) / length, self._wide / length, fits)

    @cached_property
    def _free(self) -> float:
        """How many elements there are for each weight, beyond those that determine it."""
        size = len(self.weights)
        row = (self._g / self._g.norm(dim=0)).square().sum(1)
        effective = float(row.sum() ** 2 / row.square().sum())
        return max(effective / size - 1, 1 / size)

    def holds_in_all_parts(self, ray: Ray, pattern: torch.Tensor, others: torch.Tensor) -> bool:
        """Return whether the same multiple, and no other ranks, fit small gradients and large."""
        main = ray.factor * (self._g @ pattern)
        both = torch.stack([main, self._g @ others], 1) if others.any() else main[:, None]
        for rows in self._g.abs().sum(1).argsort().tensor_split(_PARTS):
            x, h, given = self._x[rows], main[rows], both[rows]
            best = torch.linalg.lstsq(given, x[:, None], driver="gelsy").solution[:, 0]
            left, size = float((x - given @ best).norm()), given.shape[1]
            chance = left * math.hypot(1, _PART_CHANCE * math.sqrt(size / max(1, len(x) - size)))
            floor = float(self._rounded[rows].norm()) + (4 * _EPS + HARMLESS) * float(h.norm())
            if float((x - h).norm()) > chance + floor:
                return False
        return True

    def share(self, of: torch.Tensor, beside: torch.Tensor) -> tuple[float, float]:
        """Return the share of one pattern beside another, as a multiple of it, and how far off.

        Where many weights are each too small to be seen their sum may be.
        """
        main = self._g @ of
        other = self._g @ beside
        length = float(main.norm()) ** 2
        other = other - (other @ main) / length * main
        factor = float(self._x @ main) / length
        left = self._x - factor * main
        size = float(other.norm())
        if size * abs(factor) <= self._arithmetic:
            return math.nan, math.inf
        unit = other / size
        chance = _CHANCE * float((left * unit).norm()) + self._rounding(unit[:, None])
        scale = size * abs(factor)
        return float(left @ unit) / scale, chance / scale


def _shrunk(samples: int, size: int) -> float:
    """Return by how much the fit of ``size`` weights makes what is left smaller."""
    return math.sqrt(samples / (samples - size))


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
    fit = Fit(x, g, eps)
    if not fit.explained:
        return Cause("other")
    size = len(fit.weights)
    scaled = zip((fit.weights * size).tolist(), (fit.widths * size).tolist(), strict=True)
    return _of_fit(fit)._replace(weights=tuple(scaled))


def _can_be_told(g: torch.Tensor, eps: float) -> bool:
    """Return whether the weights of gradients (k, n) can be fitted at all."""
    samples, size = g.shape
    if size == 1 or samples < 4 * size or not g.isfinite().all():
        return False
    norms = g.norm(dim=0)
    # A gradient that rounding swallows cannot be told from one that is missing.
    return bool((norms > _SWALLOWED * max(eps, _EPS) * norms.max()).all())


def _of_fit(fit: Fit) -> Cause:
    size = len(fit.weights)
    mean = torch.full((size,), 1 / size, dtype=torch.float64)
    ray = fit.ray(mean)
    if not ray.fits:
        return _of_some(fit)
    if abs(ray.factor - 1) <= max(ray.wide, HARMLESS):
        return Cause("average", ray.factor, ray.tight, ray.wide)
    if abs(ray.factor) <= ray.wide or not fit.holds_in_all_parts(ray, mean, 0 * mean):
        return Cause("other")
    sure = bool((fit.weights.abs() > fit.widths).all())
    return Cause("factor", ray.factor, ray.tight, ray.wide, tuple(range(size)), sure)


def _of_some(fit: Fit) -> Cause:
    """Return the cause of a result that is no multiple of the average."""
    sizes, size = fit.weights.abs(), len(fit.weights)
    largest = sizes.max()
    if ((fit.weights - 1 / size).abs() <= fit.widths + HARMLESS / size).all():
        return Cause("average")
    if not (fit.widths <= _SMALL * largest).all():
        return Cause("unknown")
    taken = sizes >= largest / 2
    pattern = taken.double() / taken.sum()
    ray = fit.ray(pattern)
    if taken.all() or not (ray.fits and ((sizes + fit.widths)[~taken] <= _SMALL * largest).all()):
        return Cause("uneven")
    rest = (~taken).double() / (~taken).sum()
    share, off = fit.share(pattern, rest)
    if not abs(share) <= off <= _SMALL:
        return Cause("uneven")
    if not fit.holds_in_all_parts(ray, pattern, rest):
        return Cause("other")
    ranks = tuple(taken.nonzero().flatten().tolist())
    return Cause("some", ray.factor, ray.tight, ray.wide, ranks)
