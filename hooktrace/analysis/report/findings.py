"""What is wrong and what is slow, in sentences, ranked by the milliseconds to be gained.

    ModelFacts --each of RULES--> Finding(sentence, gain, evidence, remedy) --ranked--> report

A gain is an upper bound in ns a step, computed from the records by the arithmetic that stands in
its rule's docstring; ``None`` where nothing can be computed.  Gains overlap: the exposed time is
one pool that most of them draw from, so they do not add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...records import RunInfo
from ...records.units import listed
from .facts import AnomalyFacts, ModelFacts
from .finding import Finding
from .rules_compression import (
    error_is_large,
    hook_sends_what_it_gets,
    saves_less_than_it_costs,
)
from .rules_ranks import ranks_wait, slow_steps_cost
from .rules_time import (
    bucket_is_slow,
    communication_is_exposed,
    hook_holds_the_thread,
    last_bucket_is_large,
    small_buckets,
    workers_are_busy,
)

__all__ = ["Finding", "anomaly_findings", "findings"]

Rule = Callable[[ModelFacts, RunInfo | None], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    communication_is_exposed,
    last_bucket_is_large,
    small_buckets,
    workers_are_busy,
    bucket_is_slow,
    hook_holds_the_thread,
    saves_less_than_it_costs,
    hook_sends_what_it_gets,
    ranks_wait,
    slow_steps_cost,
    error_is_large,
)

LEAST = 0.005
"""Share of the step's period below which a gain is not worth a sentence."""


def findings(model: ModelFacts, run: RunInfo | None = None) -> list[Finding]:
    """Return what is to be said of a model: what is wrong first, then the largest gains."""
    found = anomaly_findings(model.anomalies)
    period = model.period.p50 if model.period is not None else 0.0
    for rule in RULES:
        found += [
            one for one in rule(model, run) if one.gain_ns is None or one.is_kept
            or one.gain_ns >= LEAST * period
        ]  # fmt: skip
    return sorted(found, key=_rank)


def _rank(finding: Finding) -> tuple[bool, float]:
    return not finding.is_wrong, -(finding.gain_ns or 0.0)


def anomaly_findings(anomalies: tuple[AnomalyFacts, ...]) -> list[Finding]:
    """Return a finding for each kind of anomaly; no time is gained by what must be put right."""
    found = []
    for one in anomalies:
        where = f"step {one.first.step}"
        if one.first.bucket >= 0:
            where += f", bucket {one.first.bucket}"
        if one.first.rank is not None:
            where += f", rank {one.first.rank}"
        times = "once" if one.count == 1 else f"{one.count} times"
        evidence = [f"first at {where}: {one.first.message}"]
        if one.count > 1:
            evidence.append(
                f"on rank {listed(one.ranks)}, in bucket {listed(one.buckets)}"
                if one.buckets
                else f"on rank {listed(one.ranks)}"
            )
        found.append(
            Finding(
                sentence=f"{_KINDS.get(one.kind, one.kind.replace('_', ' ').capitalize())}: seen "
                f"{times}, first at {where}.",
                evidence=tuple(evidence),
                is_wrong=True,
            )
        )
    return found


_KINDS = {
    "not_averaged": "The hook returns the sum of the gradients, not their average",
    "averaged_twice": "The hook divides by the world size twice",
    "wrong_sign": "The hook returns the average with the opposite sign",
    "wrong_scale": "The hook returns the average times a factor",
    "not_communicated": "The hook returns this rank's own gradients: nothing was communicated",
    "ranks_missing": "The hook returns an average without some of the ranks",
    "replicas_diverge": "The ranks train on different gradients",
    "nonfinite_gradient": "A gradient came in with NaN or inf",
    "nonfinite_result": "The hook made NaN or inf of finite gradients",
    "nonfinite_average": "NaN or inf came with the average",
    "no_compression": "The hook says that it compresses, and sends as many bytes as it gets",
    "not_synchronised": "Backward passes do not call the hook",
    "hook_exception": "The hook raised, or DDP could not have read its result",
    "holds_memory": "The hook keeps the bucket's memory from step to step",
    "changed_after_completion": "A result changed after its future had completed",
}
