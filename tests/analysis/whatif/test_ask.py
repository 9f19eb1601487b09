"""Questions, checked, and what they are answered with."""

from __future__ import annotations

import numpy as np
import pytest

from hooktrace.analysis.timeline import Timeline
from hooktrace.analysis.whatif.ask import Source, ask, everything, grid, read_source, sweep_of
from hooktrace.analysis.whatif.choice import Choice
from hooktrace.analysis.whatif.work import Network
from hooktrace.records.errors import UsageError


@pytest.fixture(scope="module")
def source(calibrated: Timeline) -> Source:
    """A made-up run's only model."""
    return read_source(calibrated, None)


def test_a_grid_is_hooks_by_buckets_without_what_is(source: Source) -> None:
    """Nothing named: all hooks; buckets alone: the run's own hook."""
    everyone = {one.hook for one in grid(source, [], [])}
    assert everyone == set(source.calibration.costs) - {"allreduce"}
    assert grid(source, [], [5.0, 25.0]) == [Choice(None, 5.0)]
    assert grid(source, ["fp16", "allreduce"], [5.0]) == [Choice("fp16", 5.0), Choice(None, 5.0)]
    with pytest.raises(UsageError, match="pass --hook one of"):
        grid(source, ["fp17"], [])


def test_an_answer_has_what_was_measured(source: Source) -> None:
    """And the run's own configuration, replayed."""
    found = ask(source, [Choice("fp16")])
    assert (found.today.hook, found.today.bucket_cap_mb, found.today.model) == (
        "allreduce", 25.0, "net",
    )  # fmt: skip
    assert found.today.step_ms == pytest.approx(found.replayed.step_ms, rel=0.02)
    assert found.baseline.step_ms == found.replayed.step_ms
    assert not found.is_elsewhere
    assert found.kinds["powersgd"] == "low-rank"
    assert len(everything(source)) == 4 * 7 - 1


def test_a_sweep_falls_with_bandwidth_and_meets_the_run(source: Source) -> None:
    """Every hook has a line; the run's own passes where the run is."""
    found = sweep_of(source, Choice())
    assert found.hooks[0] == found.today == "allreduce"
    assert set(found.hooks) == set(source.calibration.costs)
    assert np.all(np.diff(found.step_ms, axis=1) <= 1e-6)
    at = np.interp(found.bandwidth, found.bandwidths, found.step_ms[0])
    assert at == pytest.approx(found.here_ms, rel=0.1)
    assert not found.is_named
    far = sweep_of(source, Choice(ranks=16, network=Network(5e3, 1e9)))
    assert (far.is_named, far.ranks, far.bandwidth, far.latency_ns) == (True, 16, 1e9, 5e3)
