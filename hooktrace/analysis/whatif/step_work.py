"""A choice as a step to be simulated: its buckets, what its hook does with each, its network.

Choice, Calibration, NetworkFit --case_of--> StepWork, Machine, Network --> simulate
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...records.errors import UsageError
from .bucketing import bucket_limits, rebuilt_buckets
from .calibration import Calibration
from .choice import Choice
from .costs import HookCosts
from .hook_rules import nbytes
from .step_tables import Case
from .work import BucketWork, Compute, Machine, Network, StepWork


def costs_for(calibration: Calibration, choice: Choice) -> HookCosts:
    """Return the costs of a choice's hook; raises ``UsageError`` for one that was not tried."""
    label = choice.hook or calibration.hook
    if label not in calibration.costs:
        raise UsageError(
            f"hook {label!r} was not tried in the run; pass one of "
            f"{', '.join(sorted(calibration.costs))}"
        )
    return calibration.costs[label]


def buckets_for(calibration: Calibration, choice: Choice) -> Sequence[Sequence[int]]:
    """Return a choice's buckets, as rows of ``compute.parameters``; the run's own without a cap."""
    if choice.bucket_cap_mb is None:
        return calibration.buckets
    first, cap = bucket_limits(choice.bucket_cap_mb)
    return rebuilt_buckets(calibration.compute.parameters, cap, first)


def case_of(
    calibration: Calibration,
    choice: Choice,
    fitted: Network,
    *,
    compute: Compute | None = None,
    scale: float = 1.0,
    turn: float = 1.0,
) -> Case:
    """Return what to simulate.

    ``fitted``: the run's network, or a draw of it; ``compute``: likewise.  ``scale``: of the hook's
    costs; ``turn``: of ``Machine.turn_ns``.
    """
    compute = compute or calibration.compute
    ranks = choice.ranks or calibration.ranks
    costs = costs_for(calibration, choice)
    buckets = tuple(
        _bucket_work(compute, rows, costs, ranks, scale)
        for rows in buckets_for(calibration, choice)
    )
    network = network_for(choice, fitted)
    machine = _machine(calibration.machine, fitted, network)
    machine = replace(machine, turn_ns=machine.turn_ns * turn)
    return StepWork(compute, buckets, ranks, costs.serial), machine, network


def network_for(choice: Choice, fitted: Network) -> Network:
    """Return a choice's network: what a collective takes beside is the run's, whatever it is on."""
    network = fitted
    if choice.network is not None:
        network = replace(choice.network, overhead_ns=fitted.overhead_ns)
    return network if choice.per_host is None else replace(network, per_host=choice.per_host)


def _bucket_work(
    compute: Compute, rows: Sequence[int], costs: HookCosts, ranks: int, scale: float
) -> BucketWork:
    parameters = [compute.parameters[row] for row in rows]
    rounds, after_ns = costs.bucket_work(parameters, ranks=ranks, scale=scale)
    return BucketWork(max(rows), nbytes(parameters), rounds, after_ns)


def _machine(machine: Machine, fitted: Network, network: Network) -> Machine:
    """Return the machine on another network: a byte takes the same work at any bandwidth."""
    rate = network.bandwidth / fitted.bandwidth
    return replace(machine, wire_cores=machine.wire_cores * rate)
