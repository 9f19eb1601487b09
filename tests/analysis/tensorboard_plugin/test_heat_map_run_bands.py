"""The whole run in bands: percentiles over ranks and steps, as counted by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hooktrace.analysis.tensorboard_plugin.heat_map import MAX_BINS, run_bands
from hooktrace.testing.synthetic import SyntheticJob, simulate
from tests.analysis.runs import job_run, tab_of


def bands_of(job: SyntheticJob, folder: Path) -> dict[str, Any]:
    run = job_run(job, folder)
    return run_bands(run, tab_of(run))


def test_a_short_run_has_a_bin_a_step(tmp_path: Path) -> None:
    """Over the ranks: what 5 % are below and above, the median, and who has the most."""
    job = SyntheticJob(ranks=10, steps=16, slow_every=7, late_ms={3: 5.0}, jitter_ms=2.0)
    bands = bands_of(job, tmp_path)["exposed"]
    assert bands["first"] == bands["last"] == list(range(1, 17))
    for i, step in enumerate(simulate(job)):
        exposed = [step.completed(rank)[0].exposed_ns or 0 for rank in range(10)]
        expected = np.quantile(exposed, (0.05, 0.5, 0.95))
        assert [bands[name][i] for name in ("p5", "p50", "p95")] == np.rint(expected).tolist()
        most = int(np.argmax(exposed))
        assert (bands["most"][i], bands["most_rank"][i]) == (exposed[most], most)
    assert all(np.diff(bands["start"]) > 0)


def test_a_long_run_has_several_steps_a_bin(tmp_path: Path) -> None:
    """No more bins than the strip has room for, and the slow step is the most of its own."""
    job = SyntheticJob(ranks=1, steps=700, bucket_bytes=(4_000_000,), slow_every=600)
    bands = bands_of(job, tmp_path)
    assert len(bands["exposed"]["start"]) == 234 <= MAX_BINS
    slow = bands["exposed"]["most_step"][int(np.argmax(bands["exposed"]["most"]))]
    assert slow in {1, 601}
    assert bands["exposed"]["last"][-1] == 700
    assert bands["period"]["last"][-1] == 699  # the last step has no period
