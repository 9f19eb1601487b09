"""Where the tab draws buckets and steps."""

from __future__ import annotations

from pathlib import Path

from tests.analysis.run.files import steps_of
from tests.analysis.tensorboard_plugin.test_level_of_detail import MS, scene
from tests.exporters.records_sample import STEP_NS, on_device


def test_device_steps_end_with_their_last_bucket(tmp_path: Path) -> None:
    """The host's end is only when the work was enqueued."""
    made = scene(tmp_path, [on_device(s) for s in steps_of(2)])
    (rank,) = made.ranks
    assert rank.steps.end.tolist() == [6 * MS, STEP_NS + 6 * MS]
    assert rank.last_ready.tolist() == [2 * MS, STEP_NS + 2 * MS]
