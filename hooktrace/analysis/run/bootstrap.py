"""Intervals of what is measured in every step, where steps are not independent.

    Series of a run --block_length--> blocks --resampled--> Estimates of as many made-up runs
    Estimates of two runs --interval--> of their difference, 95 %

Steps that follow each other are alike: a machine that is busy is so for a while.  So not steps are
drawn, but blocks of them that follow each other, in a circle: the circular block bootstrap (Politis
and Romano 1992, "A circular block-resampling procedure for stationary data").  The length of a
block is that of Politis and White (2004), "Automatic block-length selection for the dependent
bootstrap", corrected by Patton, Politis and White (2009).

Of few blocks the bootstrap's intervals are too short, as if a mean's own spread were known.  They
are stretched about the estimate as Student's t is against the normal distribution, with the degrees
of freedom of that many blocks (Welch's, of two runs), and by sqrt(m / (m - 1)) of m blocks, the
bias of a variance over m.

Resamples are counts of how often each step was drawn.  All estimates are means of a middle share
of the ordered values: of next to nothing, the median; of half of them, the mean of the middle half;
of all, the mean.
"""

from __future__ import annotations

from math import ceil, log10, sqrt
from typing import NamedTuple

import numpy as np

from .columns import Bools, Floats, Ints

DRAWS, FEWEST_DRAWS, MOST_DRAWN = 999, 199, 4_000_000
"""Resamples of each run: fewer where more steps than ``MOST_DRAWN`` were drawn of the longest."""

LEVEL = 0.95
"""Of all intervals."""

FEWEST_STEPS = 40
"""Below which nothing is said of how a run's steps vary: the length of a block is a guess there."""

MEDIAN, MIDDLE_HALF, MEAN = 0.0, 0.5, 1.0
"""Middle shares of the values that an estimate is the mean of."""

_CHUNK = 1 << 21

# Student's t, two-sided 95 %, of 1 to 30 degrees of freedom; from any table.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_NORMAL = 1.95996


def student_t(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's t; of degrees between two whole ones, the lower's."""
    whole = max(1, int(freedom))
    return _T[whole - 1] if whole <= len(_T) else _NORMAL + 2.45 / whole


def block_length(values: Floats) -> int:
    """Return how many steps a block has; values: (steps,), known all.

    5/3 of ``politis_white``, whose length makes the squared error of a variance least: too short
    makes intervals too narrow, too long only wide.  Of 800 pairs of equal AR(1) runs of 100 steps
    5.5 % are called different with it at phi = 0.8 (4/3: 7.5 %), 4.1 % at 0.6, 3.3 % at 0.
    At least n^(1/3), the order of every best length (Hall, Horowitz and Jing 1995).
    """
    n = len(values)
    least = float(n) ** (1 / 3)
    return int(min(n // 2 or 1, ceil(max(5 / 3 * politis_white(values), least))))


def politis_white(values: Floats) -> float:
    """Return the length of Politis and White (2004) for blocks in a circle.

    The autocovariances R(k) are summed up to twice the lag after which they are noise, below
    2 sqrt(log10(n) / n) of R(0) five times in a row, with a flat-top window w:
    b = (2 G^2 / D)^(1/3) n^(1/3), G = sum of w |k| R(k), D = 4/3 (sum of w R(k))^2; at most
    min(3 sqrt(n), n / 3).
    """
    n = len(values)
    covariance = _autocovariance(values)
    if covariance[0] <= 0:
        return 1.0
    in_a_row = max(5, ceil(sqrt(log10(n))))
    lags = min(n - 1, ceil(sqrt(n)) + in_a_row)
    small = np.abs(covariance[1 : lags + 1]) < 2 * sqrt(log10(n) / n) * covariance[0]
    last = min(2 * max(_quiet_after(small, in_a_row), 1), lags)
    k = np.arange(1, last + 1)
    weighted = np.clip(2 * (1 - k / last), 0, 1) * covariance[1 : last + 1]
    spectrum = covariance[0] + 2 * float(weighted.sum())
    if spectrum <= 0:
        return 1.0
    slope = 2 * float((k * weighted).sum())
    return float(min((1.5 * (slope / spectrum) ** 2 * n) ** (1 / 3), 3 * sqrt(n), n / 3))


def _autocovariance(values: Floats) -> Floats:
    n = len(values)
    power = np.abs(np.fft.rfft(values - values.mean(), 2 * n)) ** 2
    found: Floats = np.fft.irfft(power)[:n] / n
    return found if found[0] > 1e-18 * float(values @ values) / n else np.zeros(n)


def _quiet_after(small: Bools, in_a_row: int) -> int:
    """Return after which lag so many are small in a row; else the last one that is not."""
    runs = np.flatnonzero(np.convolve(small, np.ones(in_a_row), "valid") == in_a_row)
    large = np.flatnonzero(~small)
    return int(runs[0]) if len(runs) else int(large[-1]) + 1 if len(large) else 0


class Estimates(NamedTuple):
    """The estimate of a run, those of its resamples, (draws,), and how many blocks it has."""

    found: float
    drawn: Floats
    blocks: float


def draws_for(steps: int) -> int:
    """Return how many resamples runs have that are compared, the longest of so many steps."""
    return max(FEWEST_DRAWS, min(DRAWS, MOST_DRAWN // steps))


class Series(NamedTuple):
    """A number of each step of a run, and by what the steps are ordered; both (steps,).

    ``share``: the middle share of the ordered steps that the estimate is a mean of.
    """

    values: Floats
    order: Floats
    share: float

    def estimate(self) -> float:
        """Return the mean of the middle share; NaN of no steps."""
        if not len(self.values):
            return float("nan")
        at = np.argsort(self.order, kind="stable")
        return float(_weights(np.ones((1, len(at))), self.share)[0] @ self.values[at])

    def drift(self) -> float:
        """Return by how much the estimates of the two halves differ."""
        at = len(self.values) // 2
        halves = (
            Series(self.values[x], self.order[x], self.share) for x in (np.s_[:at], np.s_[at:])
        )
        first, second = (half.estimate() for half in halves)
        return abs(second - first)

    def resampled(self, seed: int, *, length: int | None = None, draws: int = DRAWS) -> Estimates:
        """Return the estimate, and those of resamples in blocks of so many steps.

        ``length``: as values and order ask for by default.  ``draws``: the same for all runs that
        are compared, ``draws_for`` the longest.
        """
        n = len(self.order)
        length = length or max(map(block_length, (self.values, self.order)))
        at = np.argsort(self.order, kind="stable")
        place = np.empty(n, np.int64)
        place[at] = np.arange(n)
        random = np.random.default_rng(seed)
        blocks = -(-n // length)
        drawn = np.empty(draws)
        rows = max(1, _CHUNK // n)
        for first in range(0, draws, rows):
            count = min(rows, draws - first)
            starts = random.integers(0, n, (count, blocks))
            steps = (starts[..., None] + np.arange(length)).reshape(count, -1)[:, :n] % n
            flat = place[steps] + np.arange(count)[:, None] * n
            counts = np.bincount(flat.ravel(), minlength=count * n).reshape(count, n)
            drawn[first : first + count] = _weights(counts, self.share) @ self.values[at]
        return Estimates(self.estimate(), drawn, n / length)


def _weights(counts: Floats | Ints, share: float) -> Floats:
    """Return the weight of each ordered step, (draws, steps), drawn so many times; the sum is 1."""
    n = counts.shape[1]
    half = max(share * n, 1.0) / 2
    below = np.cumsum(counts, axis=1, dtype=np.float64)
    kept = np.clip(below, n / 2 - half, n / 2 + half)
    found: Floats = np.diff(kept, axis=1, prepend=n / 2 - half) / (2 * half)
    return found


def interval(a: Estimates, b: Estimates) -> tuple[float, float]:
    """Return the ends of the 95 % interval of b - a, two runs resampled by themselves."""
    return _about(b.found - a.found, b.drawn - a.drawn, _stretch(a, b))


def ratio_interval(a: Estimates, b: Estimates) -> tuple[float, float]:
    """Return the ends of the 95 % interval of b / a, of times, none of which is 0."""
    return _about(b.found / a.found, b.drawn / a.drawn, _stretch(a, b))


def _about(found: float, drawn: Floats, stretch: float) -> tuple[float, float]:
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return found - max(found - low, 0.0) * stretch, found + max(high - found, 0.0) * stretch


def _stretch(a: Estimates, b: Estimates) -> float:
    """Return by how much intervals are longer than the resamples'."""
    free = [max(one.blocks - 1, 1.0) for one in (a, b)]
    narrow = [float(one.drawn.var()) for one in (a, b)]
    spread = [x * (1 + 1 / f) for x, f in zip(narrow, free, strict=True)]  # m / (m - 1)
    if not (total := sum(spread)):
        return student_t(sum(free)) / _NORMAL
    terms = ((x / total) ** 2 / f for x, f in zip(spread, free, strict=True))
    wider = sqrt(total / sum(narrow))
    return min(max(wider, 1.0), 2.0) * student_t(1 / sum(terms)) / _NORMAL
