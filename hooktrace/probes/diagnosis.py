"""What is wrong with a hook, from the numbers of its probes: anomalies.

Runs in the drain.  A lossless or nearly lossless hook's result is a weighted sum of the ranks' own
gradients, and the weights say what it did (``weights.py``, with n ranks):

    n times the average      a sum                        in probes of three steps in a row
    1/n of it                averaged twice               as well
    s times it, s < 0        the sign is wrong            at once
    this rank's own alone    nothing was communicated,    once the next probe has brought the
                             or its result is everyone's  checksums of all ranks' results
    some ranks' average      the others are missing       at once

Whatever else may explain a result, as far as it is known, keeps it from being named: compression is
lossy, clipping and any other factor may be meant, and ranks whose gradients are alike cannot be
told apart.  ``hooktrace check``, which knows the gradients, tells more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from ..records import AnomalyRecord
from ..records.last_used import LastUsed
from .factors import FactorRun
from .probe_result import ProbeResult
from .weights import HARMLESS, cause_of


class _Alone(NamedTuple):
    """A result that is this rank's own gradient: what that means if it is this rank's only."""

    step: int
    own: AnomalyRecord
    everyones: AnomalyRecord


@dataclass(slots=True)
class _Model:
    """What is remembered of one model."""

    run: FactorRun = field(default_factory=FactorRun)
    alone: list[_Alone] = field(default_factory=list)


class Diagnosis:
    """Says what is wrong with checked results; remembers what only several of them show."""

    def __init__(self) -> None:
        self._models: LastUsed[str, _Model] = LastUsed(_Model)

    def of_probe(self, checked: ProbeResult) -> Iterator[AnomalyRecord]:
        """Yield what is wrong with a checked result; of a local hook the weights say nothing."""
        if checked.sums is None:
            return
        yield from _not_finite(checked)
        if not checked.local:
            yield from self._wrong_sum(checked)
            yield from _diverged(checked)

    def _wrong_sum(self, checked: ProbeResult) -> Iterator[AnomalyRecord]:
        yield from self._whose(checked)
        if checked.samples is None or checked.result_sample is None:
            return
        size, model = len(checked.samples), self._models.of(checked.slot.model.name)
        eps = torch.finfo(checked.slot.torch_dtype).eps
        cause = cause_of(checked.result_sample, checked.samples, eps)
        model.run.add(checked, cause, size)
        if cause.kind == "factor" and cause.factor < 0:
            what = f"the result points away from the average: it is {cause.factor:.4g} times it"
            yield checked.anomaly("wrong_sign", what)
        elif cause.kind == "factor":
            yield from model.run.named()
        elif cause.kind == "some":
            others = sorted(set(range(size)) - set(cause.ranks))
            ranks = ", ".join(str(checked.named(place)) for place in others)
            what = f"the gradients of rank(s) {ranks} are not in the result"
            missing = checked.anomaly("ranks_missing", what)
            if cause.ranks != (checked.rank,):
                yield missing
                return
            times = "" if abs(cause.factor - 1) <= HARMLESS else f"{cause.factor:.4g} times "
            what = f"the result is {times}rank {checked.named(checked.rank)}'s own gradient"
            own = checked.anomaly("not_communicated", what)
            model.alone.append(_Alone(checked.step, own, missing))

    def _whose(self, checked: ProbeResult) -> Iterator[AnomalyRecord]:
        """Tell of the step before, whose checksums this probe has brought."""
        if checked.before is None or checked.checksums is None:
            return
        model = self._models.of(checked.slot.model.name)
        alone, model.alone = model.alone, []
        same = len(checked.checksums.unique(dim=0)) == 1
        for one in alone:
            if one.step == checked.before.step and checked.before.sums:
                yield one.everyones if same else one.own


def _not_finite(checked: ProbeResult) -> Iterator[AnomalyRecord]:
    names = [name for name, _ in checked.parts]
    # Of parameters that are gathered there is none.
    all_finite = [True] * len(names) if checked.finite is None else checked.finite.tolist()
    for name, finite in zip(names, all_finite, strict=True):
        if not finite:
            what = f"the gradient of {name} had NaN or inf before the hook"
            yield checked.anomaly("nonfinite_gradient", what, stage="ready", parameter=name)
            return
    if checked.overflow is not None:
        name, largest = checked.overflow
        # FSDP asks for a sum as well, or gathers parameters.
        of = "average" if checked.slot.unit is None else "lossless result"
        what = f"the hook made NaN or inf of {name}, where the {of} is {largest:.6g} at most"
        yield checked.anomaly("nonfinite_result", what, parameter=name)


def _diverged(checked: ProbeResult) -> Iterator[AnomalyRecord]:
    if checked.before is None or checked.checksums is None or not checked.before.sums:
        return
    ranks: dict[tuple[int, ...], list[int]] = {}
    for rank, sums in enumerate(checked.checksums.tolist()):
        ranks.setdefault(tuple(sums), []).append(checked.named(rank))
    if len(ranks) == 1:
        return
    groups = " and ".join(f"[{', '.join(map(str, group))}]" for group in ranks.values())
    buckets = ", ".join(map(str, sorted(checked.before.sums)))
    what = (
        f"at step {checked.before.step} the results of bucket(s) {buckets} were not the same on "
        f"ranks {groups}"
    )
    yield checked.anomaly("replicas_diverge", what)
