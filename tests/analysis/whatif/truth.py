"""What a made-up run is like: its gradients, its hooks' costs, its machine and network."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from hooktrace.analysis.whatif.costs import HookCosts, Piece
from hooktrace.analysis.whatif.hook_rules import label_of, rule_of
from hooktrace.analysis.whatif.simulate import simulate
from hooktrace.analysis.whatif.work import (
    BucketWork,
    Compute,
    Machine,
    Network,
    Parameter,
    StepWork,
)

MS = 1_000_000


def costs(hook: str, *before_and_after: tuple[float, ...], **options: Any) -> HookCosts:
    """Return costs by coefficients of the rule's features: before each round, and after."""
    rule = rule_of(hook)
    assert rule is not None
    *before, after = (Piece(np.array(one)) for one in before_and_after)
    return HookCosts(label_of(hook, options), hook, options, rule, tuple(before), after, ranks=2)


def parameters(count: int = 24, side: int = 512) -> tuple[Parameter, ...]:
    """Return matrices and the vectors after them, in the order of their gradients."""
    found: list[Parameter] = []
    for i in range(count):
        found += [
            Parameter(f"{i}.bias", (side,), "float32", 4 * side),
            Parameter(f"{i}.weight", (side, side), "float32", 4 * side * side),
        ]
    return tuple(found)


DEFAULT_COSTS = (
    costs("allreduce", (20e3, 0.15), (0.0, 0.0)),
    costs("fp16", (30e3, 0.4), (20e3, 0.3)),
    costs("quantize-per-channel", (80e3, 1.2), (60e3, 1.0)),
    costs(
        "powersgd",
        (50e3, 0.5, 0.1, 20e3, 0.0),
        (30e3, 0.5, 0.0, 10e3, 0.0),
        (20e3, 0.4, 0.2, 5e3, 0.0),
        matrix_approximation_rank=1,
        min_compression_rate=2,
    ),
)


@dataclass(frozen=True)
class Truth:
    """A run.

    ``noise``: standard deviation of a step's computing, of collectives and of trials.
    ``wire_share``: of a core, that transfers take.  ``slower``: how many times as long calibrated
    steps compute.  ``buckets_of``: parameters of each bucket but the first; 0: all are in one.
    """

    parameters: tuple[Parameter, ...] = field(default_factory=parameters)
    hook: str = "allreduce"
    step_parameters_ms: float = 40.0
    rest_ms: float = 25.0
    network: Network = field(
        default_factory=lambda: Network(latency_ns=100e3, bandwidth=100e6, overhead_ns=200e3)
    )
    machine: Machine = field(
        default_factory=lambda: Machine(cores=8.0, wire_cores=0.0, call_ns=50e3)
    )
    costs: tuple[HookCosts, ...] = DEFAULT_COSTS
    buckets_of: int = 6
    steps: int = 60
    ranks: int = 2
    noise: float = 0.02
    wire_share: float = 0.0
    slower: float = 1.0
    seed: int = 0

    @property
    def own(self) -> HookCosts:
        """The costs of the run's own hook."""
        return next(one for one in self.costs if one.label == self.hook)

    @property
    def buckets(self) -> list[list[int]]:
        """Rows of parameters: the first bucket holds one matrix."""
        if not self.buckets_of:
            return [list(range(len(self.parameters)))]
        edges = [0, 2, *range(2 + self.buckets_of, len(self.parameters), self.buckets_of)]
        edges.append(len(self.parameters))
        return [list(range(a, b)) for a, b in pairwise(edges) if b > a]

    def compute(self, slower: float = 1.0) -> Compute:
        """Return the compute of a step that takes so many times as long."""
        sizes = np.array([one.nbytes for one in self.parameters], np.float64)
        ready = np.cumsum(sizes) - sizes[0]
        ready *= self.step_parameters_ms * MS / ready[-1] * slower
        return Compute(self.parameters, ready, ready[-1] + 0.3 * MS, self.rest_ms * MS * slower)

    def work(self, hook: HookCosts, compute: Compute, buckets: list[list[int]]) -> StepWork:
        """Return a step of a hook with these buckets."""
        works = []
        for rows in buckets:
            own = [self.parameters[row] for row in rows]
            rounds, after = hook.bucket_work(own)
            works.append(BucketWork(max(rows), sum(p.nbytes for p in own), rounds, after))
        return StepWork(compute, tuple(works), self.ranks, hook.serial)

    def step_ns(self, label: str, buckets: list[list[int]]) -> float:
        """Return the true step time of another hook and other buckets."""
        hook = next(one for one in self.costs if one.label == label)
        work = self.work(hook, self.compute(), buckets)
        return simulate(work, self.machine, self.network).step_ns
