"""A model's settled steps as arrays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.report.jobs import MS, facts_of
from tests.analysis.run.files import run_of, steps_of, text_of, write_ranks


def test_a_steps_times_are_those_of_its_records(tmp_path: Path) -> None:
    """A step of the sample: 10 ms, two buckets 1 ms apart of 2 ms each, so 2 ms are exposed."""
    write_ranks(tmp_path, {r: text_of(run_of(r), steps_of(9)) for r in range(2)})
    model = facts_of(tmp_path)
    assert (model.steps, model.clock, model.exposed_share) == (9, "host", 0.2)
    assert model.period is not None
    assert model.exposed is not None
    assert (model.period.p50, model.exposed.p50, model.communication_ns) == (
        10 * MS,
        2 * MS,
        3 * MS,
    )
    assert model.overlap == pytest.approx(1 / 3)
    assert (model.gradient_bytes, model.wire_bytes) == (8_000, 4_000)
    first, last = model.buckets
    assert first.stages == {
        "compress": 0.1 * MS, "queue": 0.4 * MS, "wire": 1 * MS, "decompress": 0.5 * MS,
    }  # fmt: skip
    assert (first.ready_ns, last.ready_ns) == (0, 1 * MS)
    assert (first.is_last, last.is_last) == (False, True)
    assert (first.exposed_share, last.exposed_share) == (0.5, 0.5)  # done 1 and 2 ms after backward
    assert first.busbw_bytes_per_second == pytest.approx(2_000 / 1e-3)
