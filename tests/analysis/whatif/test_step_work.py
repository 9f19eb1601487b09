"""A choice as a step to be simulated."""

from __future__ import annotations

from hooktrace.analysis.timeline import Timeline
from hooktrace.analysis.whatif.calibration import read_calibration
from hooktrace.analysis.whatif.choice import Choice
from hooktrace.analysis.whatif.fit_network import fit_network
from hooktrace.analysis.whatif.step_work import buckets_for, case_of
from hooktrace.analysis.whatif.work import Network

from .calibrated_run import MODEL
from .truth import Truth


def test_what_is_not_chosen_is_as_it_was(truth: Truth, calibrated: Timeline) -> None:
    """Buckets, hook, ranks and network of the run; a cap makes other buckets of all parameters."""
    calibration, fit = read_calibration(calibrated, MODEL), fit_network(calibrated, MODEL)
    work, machine, network = case_of(calibration, Choice(), fit.network)
    assert [bucket.last_parameter for bucket in work.buckets] == [max(b) for b in truth.buckets]
    assert (work.ranks, network, machine) == (2, fit.network, calibration.machine)
    rows = [row for bucket in buckets_for(calibration, Choice(bucket_cap_mb=2.0)) for row in bucket]
    assert sorted(rows) == list(range(len(truth.parameters)))


def test_a_named_network_keeps_what_threads_take(calibrated: Timeline) -> None:
    """A collective's overhead is the software's; bytes that come faster take more of a core."""
    calibration, fit = read_calibration(calibrated, MODEL), fit_network(calibrated, MODEL)
    named = Network(latency_ns=1.0, bandwidth=2 * fit.network.bandwidth)
    _, machine, network = case_of(calibration, Choice(network=named, per_host=4), fit.network)
    assert network.overhead_ns == fit.network.overhead_ns
    assert (network.latency_ns, network.per_host) == (1.0, 4)
    assert machine.wire_cores == 2 * calibration.machine.wire_cores
