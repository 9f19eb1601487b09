"""What a tracer is asked by its job: where its records go, how it stands to other clocks."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hooktrace import Tracer
from hooktrace.exporters import RecordFileExporter, TensorBoardExporter


def test_records_stand_where_their_exporters_write(tmp_path: Path) -> None:
    """TensorBoard's files are no records."""
    exporters = [RecordFileExporter(tmp_path / "a"), TensorBoardExporter(tmp_path / "b")]
    with Tracer(exporters) as tracer:
        assert tracer.logdirs == [tmp_path / "a"]
        assert tracer.keep_detail("net", 3, 2)
    with Tracer() as tracer:
        assert tracer.logdirs == []
        assert not tracer.keep_detail("net", 3, 2)


@pytest.mark.parametrize("options", [{"align_clocks": False}, {"channel": False}])
def test_a_clock_that_is_not_compared_has_no_offset(options: dict[str, bool]) -> None:
    """Nor one of the user's own beside another tracer's."""
    with Tracer(**options) as tracer:  # type: ignore[arg-type]
        tracer.start()
        assert tracer.clock_offset(time.perf_counter_ns()) is None
    with Tracer() as first, Tracer(clock=time.monotonic_ns) as other:
        first.start()
        other.start()
        assert other.clock_offset(0) is None
