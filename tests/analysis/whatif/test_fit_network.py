"""The network comes back from a run's own collectives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hooktrace.analysis.timeline import Timeline
from hooktrace.analysis.whatif.fit_network import fit_network
from hooktrace.analysis.whatif.work import Network

from .calibrated_run import MODEL, written
from .truth import Truth, parameters


def test_collectives_that_share_the_link_do_not_make_it_slower(
    truth: Truth, calibrated: Timeline
) -> None:
    """Two are under way all the time; one size: the latency is that of pings, and that is said."""
    fit = fit_network(calibrated, MODEL)
    assert fit.network.bandwidth == pytest.approx(truth.network.bandwidth, rel=0.005)
    assert not fit.latency_known
    assert "too little in size" in fit.why
    assert "so small" not in fit.why
    assert fit.network.latency_ns == pytest.approx(truth.network.latency_ns)


def test_small_transfers_tell_little_of_the_bandwidth(tmp_path: Path) -> None:
    """They may be nearly all waiting, and it is said what that makes of predictions."""
    small = Truth(parameters=parameters(24, side=32), buckets_of=0)
    fit = fit_network(written(small, tmp_path), MODEL)
    assert not fit.latency_known
    assert "may be many times as high" in fit.why


def test_sizes_tell_latency_from_bandwidth(tmp_path: Path) -> None:
    """Buckets one after another, of two sizes: pings say which part of the intercept is latency."""
    network = Network(latency_ns=300e3, bandwidth=500e6, overhead_ns=250e3)
    fit = fit_network(written(Truth(network=network, noise=0.03), tmp_path), MODEL)
    assert fit.latency_known
    assert fit.low.bandwidth <= 500e6 <= fit.high.bandwidth
    assert fit.network.bandwidth == pytest.approx(500e6, rel=0.03)
    assert fit.network.latency_ns == pytest.approx(300e3, rel=0.05)
    assert fit.network.overhead_ns == pytest.approx(250e3, rel=0.6)
    assert replace(fit.low, bandwidth=1.0) != replace(fit.high, bandwidth=1.0)
