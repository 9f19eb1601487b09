"""What the run's own hook costs: as its trials say, scaled to what its own stages took in the run.

settled steps --> medians of compress and decompress of each bucket --+
trials --costs.py--> HookCosts of the same label ---------------------+--> HookCosts
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ..report.step_arrays import StepArrays, medians
from .costs import HookCosts, Piece, fit_piece, plain_costs
from .own_run import OwnRun, parameters_in
from .work import Floats


def own_costs(own: OwnRun, tried: HookCosts | None, share: float = 1.0) -> HookCosts:
    """Return the costs of the run's own hook; ``tried``: of its trials, ``None`` without any.

    ``share``: of a core, that its threads had (``machine.core_share``).
    """
    buckets = sorted(own.layout.buckets, key=lambda bucket: bucket.bucket)
    features = np.array([own.rule.features(parameters_in(b), own.options) for b in buckets])
    before, after = (share * _per_bucket(own.arrays, name) for name in ("compress", "decompress"))
    there = np.isin([b.bucket for b in buckets], own.arrays.buckets)
    features, before, after = features[there], before[: there.sum()], after[: there.sum()]
    if tried is None:
        plain = plain_costs(own.label, own.rule, own.options, own.ranks)
        rounds = max((len(sent) for sent in own.sent.values()), default=0)
        # Nobody told the rounds apart: each takes its share of all work before them.
        piece = Piece(fit_piece(features, before).coefficients / max(rounds, 1))
        return replace(plain, before=(piece,) * rounds, after=fit_piece(features, after))
    told_before, told_after = _told(tried, features)
    return tried.scaled(_ratio(before, told_before), _ratio(after, told_after))


def as_in_steps(
    costs: Mapping[str, HookCosts], own: OwnRun, share: float = 1.0
) -> dict[str, HookCosts]:
    """Return the costs of all tried hooks, the run's own as it is in steps, from its stages."""
    return {**costs, own.label: own_costs(own, costs.get(own.label), share)}


def _told(tried: HookCosts, features: Floats) -> tuple[float, float]:
    """Return what trials say of the work before rounds, and after them, on all buckets."""
    before = sum(piece.ns(row) for row in features for piece in tried.before)
    return before, sum(tried.after.ns(row) for row in features)


def _per_bucket(arrays: StepArrays, stage: str) -> Floats:
    """Return the median ns of each bucket in a stage; 0 where the hook has none."""
    found = arrays.stages.get(stage)
    if found is None:
        return np.zeros(len(arrays.buckets))
    return np.nan_to_num(medians(found.reshape(-1, found.shape[2]), 0))


def _ratio(measured: Floats, told: float) -> float:
    return float(measured.sum()) / told if told > 0 else 1.0
