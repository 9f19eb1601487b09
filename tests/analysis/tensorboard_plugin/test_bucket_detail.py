"""All numbers of one bucket, as the tab shows them; of whole jobs they are in ``golden/``."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.analysis.tensorboard_plugin.bucket_detail import bucket_detail
from hooktrace.analysis.tensorboard_plugin.runs import NotThereError
from hooktrace.records import ErrorRecord
from hooktrace.records.files import record_path
from hooktrace.testing.synthetic import SyntheticJob
from hooktrace.testing.synthetic_shards import ShardedJob, sharded_steps
from tests.analysis.run.files import Times, steps_of, text_of, write_ranks, write_times
from tests.analysis.runs import job_run, run_in, tab_of
from tests.analysis.tensorboard_plugin.test_level_of_detail import scene
from tests.exporters.records_sample import checked


def test_details_are_those_of_the_record(tmp_path: Path) -> None:
    step, buckets = checked(steps_of(1)[0])
    failed = (buckets[0], replace(buckets[1], exception="ValueError: no"))
    made = scene(tmp_path, [(step, failed)])
    first = bucket_detail(made, 0, row=0)
    assert first["title"] == "bucket 0, step 0, rank 0"
    assert first["times"][0] == ["ready to done", "2.000 ms"]
    assert first["stages"][1] == [3, "queue", "0.400 ms", "derived"]
    assert first["bytes"][1] == ["on the wire", "2 kB (2 times less)"]
    assert len(first["bytes"]) == 3
    alone = scene(tmp_path, [(step, (replace(buckets[0], bus_bytes=0.0), buckets[1]))])
    assert len(bucket_detail(alone, 0, row=0)["bytes"]) == 2  # nothing crosses a bus
    assert first["error"][0] == ["relative L2", "0.25"]
    assert first["worst"] == [["layer0.bias", "inf"]]
    last = bucket_detail(made, 0, row=1)
    assert last["exception"] == "ValueError: no"
    assert dict(last["what"])["marks"] == "is last, exception"
    for rank, row in ((0, 2), (0, -1), (1, 0)):
        with pytest.raises(NotThereError):
            bucket_detail(made, rank, row=row)


def test_a_bucket_is_found_by_its_step(tmp_path: Path) -> None:
    """In its rank's file, whatever stands before it; one that is not there is named."""
    made = scene(tmp_path, steps_of(3))
    assert bucket_detail(made, 0, bucket=1, step=2)["title"] == "bucket 1, step 2, rank 0"
    for rank, step, bucket in ((1, 2, 1), (0, 3, 1), (0, 2, 2)):
        with pytest.raises(NotThereError, match=f"rank {rank} has no bucket {bucket} in step"):
            bucket_detail(made, rank, bucket=bucket, step=step)


def test_bus_bandwidth_is_of_the_transfer(tmp_path: Path) -> None:
    """Rank 0 waits for 5 of some 9 ms; of one file alone nobody knows what is waiting."""
    job = SyntheticJob(ranks=2, steps=4, late_ms={1: 5.0}, jitter_ms=0.0)
    made = tab_of(job_run(job, tmp_path))
    record_path(tmp_path, 1).unlink()
    alone = tab_of(run_in(tmp_path))
    waiting, late = (dict(bucket_detail(made, rank, row=0)["bytes"]) for rank in (0, 1))
    assert waiting["bus bandwidth"] == late["bus bandwidth"]
    name, rate = bucket_detail(alone, 0, row=0)["bytes"][-1]
    assert name == "bus bandwidth, with what it waits"
    assert float(rate.split()[0]) < 0.6 * float(late["bus bandwidth"].split()[0])


def test_an_error_says_what_it_is_against(tmp_path: Path) -> None:
    """Of parameters that are gathered there is no average."""
    job = ShardedJob(ranks=1, steps=1, units=("<root>",))
    error = ErrorRecord(
        relative_l2=0.1, cosine=1.0, max_absolute=0.1, flipped_share=0.0, reference_l2=1.0
    )
    step, calls = next(sharded_steps(job))[0]
    checked = step, tuple(replace(call, error=error) for call in calls)
    write_ranks(tmp_path, {0: text_of(job.run(0), [checked])})
    scene = tab_of(run_in(tmp_path))
    told = [dict(bucket_detail(scene, 0, row=row)["error"])["against"] for row in range(2)]
    assert told == ["the parameters", "a lossless reduce-scatter"]


def test_what_a_unit_exposes_may_not_be_known(tmp_path: Path) -> None:
    job = ShardedJob(ranks=1, steps=1)
    record, (first, second, *others) = next(sharded_steps(job))[0]
    calls = (replace(first, exposed_ns=500_000), replace(second, exposed_ns=None), *others)
    write_ranks(tmp_path, {0: text_of(job.run(0), [(replace(record, exposed_ns=None), calls)])})
    scene = tab_of(run_in(tmp_path))
    told = [dict(bucket_detail(scene, 0, row=row)["times"])["exposed"] for row in range(2)]
    assert told == [
        "0.500 ms", "not known: its record does not say what training waited for it"
    ]  # fmt: skip


_LATE = [(13.0, 13.0, 13.0, 20.0, 20.0)]


@pytest.mark.parametrize(("ranks", "told"), [
    ([[(1.0, 1.0, 1.0, 20.0, 20.0)], _LATE, _LATE],
     ["waits 12.0 ms; the clocks do not show which rank is last",
      "waits for nobody, as far as is known"]),
    ([[(0.0, 1.0, 1.0, 9.0, 9.0)], [(10.0, 12.0, 12.0, 30.0, 31.0)]],
     ["how much of it is waiting is not known, because its collective was not found on all ranks"]),
], ids=["two come last", "done before the other began"])  # fmt: skip
def test_what_is_not_known_of_a_wait_is_said(
    tmp_path: Path, ranks: list[list[Times]], told: list[str]
) -> None:
    write_times(tmp_path, [ranks])
    made = tab_of(run_in(tmp_path))
    assert [bucket_detail(made, rank, row=0)["waiting"] for rank in range(len(told))] == told
