"""What each hook costs on a bucket of any size, from trials of it on this job's gradients.

    trials of one hook --medians of each part of the gradients--> times of its pieces
        pieces: before each round, after the last --fit--> HookCosts --bucket_work--> rounds, after

The time of a piece is a sum of the rule's features (a bucket, a byte; of PowerSGD a matrix, an
element of thin matrices too) with coefficients that are not negative, by least squares of relative
deviations.  What is sent follows from shapes (``hook_rules``), and is exact.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...records import TrialRecord
from .hook_rules import Parameters, Rule, Sent, label_of, rule_of
from .work import Floats, RoundWork

PartOf = Mapping[tuple[int, int], Parameters]
"""By generation and bucket: its parameters, in the bucket's order."""

ADDING_NS = 2.4
"""Of a float16 element, beyond a bfloat16 one: gloo adds them one by one.  Measured between two
ranks of a machine, 4 million elements: 13 ms and 8 ms, of which each rank adds half.
"""
_LEAST_NS = 1000.0
"""Below it a difference is the clock's, and no share of the work."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One stretch of a hook's work on a bucket: ns of each feature of the rule, (features,)."""

    coefficients: Floats

    def ns(self, features: Sequence[float]) -> float:
        """Return what it takes where the features are these."""
        return float(self.coefficients @ np.asarray(features))


@dataclass(frozen=True, slots=True)
class HookCosts:
    """What one hook takes on a bucket.

    ``options``: of its state.  ``before``: the work before each round, ``after``: after the last
    one, with ``ranks`` ranks.  ``spread``: by what share of itself a predicted time is off, one
    standard deviation.  ``error``: relative l2 of the local error over the whole model, ``None``
    where no trial could tell.
    """

    label: str
    hook: str
    options: Mapping[str, Any]
    rule: Rule
    before: tuple[Piece, ...]
    after: Piece
    ranks: int
    spread: float = 0.0
    error: float | None = None

    @property
    def kind(self) -> str:
        """What the hook does to the gradients, as in the catalogue."""
        return self.rule.kind

    @property
    def lossy(self) -> bool:
        """Whether results differ from the average by more than rounding."""
        return self.rule.lossy

    @property
    def serial(self) -> bool:
        """Whether one bucket's rounds come after another's."""
        return self.rule.serial

    def bucket_work(
        self, parameters: Parameters, *, ranks: int | None = None, scale: float = 1.0
    ) -> tuple[tuple[RoundWork, ...], float]:
        """Return the rounds of a bucket, and ns of work after the last one.

        ``scale``: of all times, for draws of what is not known of them.  The work on what was
        gathered grows with the ranks that it came from.
        """
        features = self.rule.features(parameters, self.options)
        sent = self.rule.sends(parameters, self.options)
        rounds = tuple(
            RoundWork(
                piece.ns(features) * scale,
                one.collective,
                float(one.wire_bytes),
                ADDING_NS * one.halves,
            )
            for one, piece in zip(sent, self.before, strict=False)
        )
        grown = (ranks or self.ranks) / self.ranks if _gathers(sent) else 1.0
        return rounds, self.after.ns(features) * scale * grown

    def scaled(self, before: float, after: float) -> HookCosts:
        """Return costs whose work before rounds, and after them, takes so many times as long."""
        return replace(
            self,
            before=tuple(Piece(piece.coefficients * before) for piece in self.before),
            after=Piece(self.after.coefficients * after),
        )


def costs_of(trials: Sequence[TrialRecord], parts: PartOf, ranks: int) -> dict[str, HookCosts]:
    """Return what each tried hook costs, by label; trials of unknown hooks or buckets are left out.

    ``parts``: the parameters of each bucket that was tried.
    """
    by_label: defaultdict[str, list[TrialRecord]] = defaultdict(list)
    for trial in trials:
        if (trial.generation, trial.bucket) in parts:
            by_label[label_of(trial.hook, dict(trial.options))].append(trial)
    found = {}
    for label, own in by_label.items():
        rule = rule_of(own[0].hook)
        if rule is not None:
            found[label] = _fitted(label, rule, own, parts, ranks)
    return found


def parameters_of(trial: TrialRecord, parts: PartOf) -> Parameters:
    """Return the parameters that a trial was of."""
    whole = parts[trial.generation, trial.bucket]
    return whole[trial.first : trial.first + trial.count]


def plain_costs(label: str, rule: Rule, options: Mapping[str, Any], ranks: int) -> HookCosts:
    """Return costs of which nothing but what is sent is known: no work takes any time."""
    nothing = Piece(np.zeros(len(rule.features([], options))))
    return HookCosts(label, label, options, rule, (nothing, nothing), nothing, ranks)


def fit_piece(features: Floats, times: Floats) -> Piece:
    """Return the piece that takes ``times`` (n,) where features are (n, k), as far as it can.

    All 2^k sets of features are tried: of those whose least squares have no negative coefficient
    the best is taken, which is the solution of the problem with that condition.  Of as good ones,
    that with fewer features, and without the first one, which is 1 for any bucket: where one size
    was tried, what it took is taken to grow with the size.
    """
    weights = 1 / np.maximum(times, _LEAST_NS)
    scaled, target = features * weights[:, None], times * weights
    best, least = np.zeros(features.shape[1]), float(target @ target)
    by_preference = (*range(1, features.shape[1]), 0)
    for size in range(1, features.shape[1] + 1):
        for chosen in itertools.combinations(by_preference, size):
            found = np.linalg.lstsq(scaled[:, chosen], target, rcond=None)[0]
            off = float(np.sum((scaled[:, chosen] @ found - target) ** 2))
            if (found >= 0).all() and off < least * (1 - 1e-6) - 1e-15:
                best, least = np.zeros(features.shape[1]), off
                best[list(chosen)] = found
    return Piece(best)


def _fitted(
    label: str, rule: Rule, trials: list[TrialRecord], parts: PartOf, ranks: int
) -> HookCosts:
    options = dict(trials[0].options)
    groups: defaultdict[tuple[int, int, int, int], list[TrialRecord]] = defaultdict(list)
    for trial in trials:
        groups[trial.generation, trial.bucket, trial.first, trial.count].append(trial)
    tried = list(groups.values())
    features = np.array([rule.features(parameters_of(g[0], parts), options) for g in tried])
    rounds = max(len(group[0].rounds) for group in tried)
    before = tuple(_before(tried, features, turn) for turn in range(rounds))
    after = fit_piece(features, np.array([_middle([t.after_ns for t in g]) for g in tried]))
    found = HookCosts(label, trials[0].hook, options, rule, before, after, ranks)
    spread = _spread(found, tried, features)
    return replace(found, spread=spread, error=_error(rule, tried))


def _before(tried: list[list[TrialRecord]], features: Floats, turn: int) -> Piece:
    """Return the work before a round, of those parts that have it."""
    having = [i for i, group in enumerate(tried) if len(group[0].rounds) > turn]
    times = [_middle([t.rounds[turn].before_ns for t in tried[i]]) for i in having]
    return fit_piece(features[having], np.array(times))


def _spread(costs: HookCosts, tried: list[list[TrialRecord]], features: Floats) -> float:
    """Return by what share predicted times of whole parts are off: fit and noise of trials."""
    off, noise = [], []
    for group, row in zip(tried, features, strict=True):
        times = np.array([_total(trial) for trial in group], np.float64)
        middle = max(float(np.median(times)), _LEAST_NS)
        told = sum(piece.ns(row) for piece in costs.before[: len(group[0].rounds)])
        off.append((told + costs.after.ns(row)) / middle - 1)
        noise.append(1.4826 * float(np.median(abs(times / middle - 1))) / math.sqrt(len(times)))
    return float(np.hypot(np.sqrt(np.mean(np.square(off))), np.mean(noise)))


def _error(rule: Rule, tried: list[list[TrialRecord]]) -> float | None:
    """Return the relative error over all parts; of overlapping ones, those of most parameters."""
    if not rule.lossy:
        return 0.0
    largest: dict[tuple[int, int], list[TrialRecord]] = {}
    for group in sorted(tried, key=lambda g: g[0].count):
        largest[group[0].generation, group[0].bucket] = group
    off = whole = 0.0
    for group in largest.values():
        known = [t for t in group if t.relative_l2 is not None and math.isfinite(t.relative_l2)]
        if not known:
            return None
        # Without its norm, a part weighs as its elements do.
        sizes = [float(t.numel) if t.reference_l2 is None else t.reference_l2**2 for t in known]
        size = _middle(sizes)
        whole += size
        off += size * _middle([t.relative_l2 or 0.0 for t in known]) ** 2
    return math.sqrt(off / whole) if whole else None


def _total(trial: TrialRecord) -> int:
    return trial.after_ns + sum(one.before_ns for one in trial.rounds)


def _gathers(sent: Sequence[Sent]) -> bool:
    return any(one.collective == "all_gather" for one in sent)


def _middle(values: Sequence[float]) -> float:
    return float(np.median(np.asarray(values, np.float64)))
