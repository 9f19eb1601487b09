"""A run is read: which files are of it, ranks whose clocks are apart, which steps count."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from hooktrace.analysis.frames import load as load_frames
from hooktrace.analysis.report import build_report
from hooktrace.analysis.run import REASONS, delays, files, load, reasons
from hooktrace.analysis.run.clock import RankClock
from hooktrace.analysis.run.dense import Spread
from hooktrace.analysis.run.others import other_traffic
from hooktrace.analysis.run.rows import made
from hooktrace.analysis.run.tables import TABLES
from hooktrace.records import CLOCK_DRIFT, ClockRecord, CompletedStep, StepRecord
from hooktrace.records.errors import UsageError
from hooktrace.records.files import find_records, record_path
from hooktrace.testing.synthetic import SyntheticJob, write_job
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from tests.analysis.jobs import bounded
from tests.analysis.run.files import (
    MS,
    collective,
    drop,
    moved,
    run_of,
    steps_of,
    text_of,
    write_changed,
    write_others,
    write_ranks,
    write_times,
)
from tests.analysis.runs import call, facts_of, run_in
from tests.distributed.harness import REPOSITORY
from tests.exporters.records_sample import HOST_ANCHOR_NS, MODEL, STEP_NS, make_step
from tests.integrations.frameworks import ALONE, check_namespaces, needs_frameworks, run

S = 1_000_000_000
JOB = SyntheticJob(ranks=3, steps=120, late_ms={1: 3.0})
SMALL = SyntheticJob(ranks=2, steps=8, bucket_bytes=(1_000_000,) * 2)


def clock(time_ns: int, offset_ns: int, uncertainty_ns: int = 20_000) -> ClockRecord:
    return ClockRecord(
        time_ns=time_ns, offset_ns=offset_ns, uncertainty_ns=uncertainty_ns,
        round_trip_ns=2 * uncertainty_ns, pings=32,
    )  # fmt: skip


def test_a_rank_that_is_seconds_away_and_drifts_is_put_in_its_place(tmp_path: Path) -> None:
    """7 s behind and 80 ppm slow: all buckets are where rank 0's are, within the uncertainty."""
    steps = steps_of(200)

    def behind(host_ns: int) -> int:
        return host_ns - 7 * S - round((host_ns - HOST_ANCHOR_NS) * 80e-6)

    slow = [moved(step, behind) for step in steps]
    span = 200 * STEP_NS
    measured = [
        clock(behind(at), at - behind(at))
        for at in range(HOST_ANCHOR_NS, HOST_ANCHOR_NS + span + 1, span // 4)
    ]
    write_ranks(
        tmp_path,
        {0: text_of(run_of(0), steps), 1: text_of(run_of(1), slow, clocks=measured)},
    )
    found = delays(run_in(tmp_path), MODEL)
    assert [len(own.ns) for own in found] == [400, 400]
    assert {ns for own in found for ns in own.ns.tolist()} <= {0, 1, 2}  # of rounding
    assert {ns for own in found for ns in own.unsure.tolist()} <= {0, 20_000}


def test_uncertainty_grows_beyond_the_measurements() -> None:
    """By the drift that is allowed for; between two the larger one holds."""
    measured = [clock(10 * S, 100, 1000), clock(20 * S, 300, 3000)]
    found = RankClock(run_of(1), measured, run_of(0))
    times = np.array([0, 10 * S, 15 * S, 20 * S, 30 * S])
    drifted = round(10 * S * CLOCK_DRIFT)
    assert found.uncertainty(times).tolist() == [
        1000 + drifted, 1000, 3000, 3000, 3000 + drifted,
    ]  # fmt: skip
    assert (found.common(times) - times).tolist() == [100, 100, 200, 300, 300]


def test_offsets_keep_their_nanoseconds() -> None:
    """Also where they are larger than a double is exact to."""
    offset = 2**60 + 12345
    found = RankClock(run_of(1), [clock(S, offset), clock(2 * S, offset + 10)], run_of(0))
    times = np.array([S, S + S // 2, 2 * S])
    assert (found.common(times) - times).tolist() == [offset, offset + 5, offset + 10]


def test_a_job_that_was_started_again_on_fewer_ranks(tmp_path: Path) -> None:
    """The newest run is shown, not the one that most files are of; an empty file is no rank."""
    texts = {rank: text_of(run_of(rank, run_id="older"), steps_of(1)) for rank in range(4)}
    now = run_of(0)
    again = replace(now, wall_anchor_ns=now.wall_anchor_ns + 1)
    write_ranks(tmp_path, {**texts, 0: text_of(again, steps_of(1)), 3: '{"kind":"run","run_id":'})
    found = run_in(tmp_path)
    assert [t.rank for t in found.tracks] == [0]
    assert [t.rank for t in found.other_runs] == [1, 2]


def test_a_file_that_cannot_be_read_takes_no_other_with_it(tmp_path: Path) -> None:
    """It is named with the reason: unreadable, another tool's, of no rank, or of one twice."""
    texts = {rank: text_of(run_of(rank, world_size=4), steps_of(3)) for rank in (0, 1)}
    texts |= {2: "no record\n", 3: "", 4: text_of(run_of(4, world_size=4), steps_of(3))}
    write_ranks(tmp_path, {**texts, 7: texts[1]})
    record_path(tmp_path, 3).unlink()
    record_path(tmp_path, 3).mkdir()
    found = run_in(tmp_path)
    assert [track.rank for track in found.tracks] == [0, 1]
    said = {one.file: one.why for one in found.unread}
    assert "is no record file of hooktrace" in said["rank00002.jsonl"]
    assert said["rank00003.jsonl"] == (
        "it is not a regular file; put a file there that you may read"
    )
    assert said["rank00004.jsonl"] == "it is of none of the run's 4 ranks; remove it"
    assert said["rank00007.jsonl"] == "rank00001.jsonl is of the same rank and run; remove one"


def test_a_job_that_hung_in_its_first_step_is_a_run(tmp_path: Path) -> None:
    """Though it has no step; a file without either holds nothing to tell."""
    write_hung_job(SyntheticJob(steps=3), SyntheticHang(step=1), tmp_path)
    assert files.read_run(tmp_path).model_names == ["synthetic"]
    write_hung_job(SyntheticJob(steps=3), SyntheticHang(step=1, killed=(0, 1, 2, 3)), tmp_path)
    with pytest.raises(UsageError, match="hold no step"):
        files.read_run(tmp_path)


def several(step: StepRecord) -> StepRecord:
    """A probe of earlier buckets says nothing of those that there are, so it is of these."""
    return replace(
        step, warmup=step.step == 1, complete=step.step != 2, checked=step.step < 5,
        rebuild=1 if step.step < 4 else 2,
    )  # fmt: skip


def last_not_whole(step: StepRecord) -> StepRecord:
    """The last steps are of other buckets, and each of them was checked or broke off."""
    if step.step < 7:
        return step
    return replace(step, rebuild=2, checked=step.step == 7, complete=step.step < 8)


def test_of_several_reasons_not_to_count_the_first_stands(tmp_path: Path) -> None:
    """Steps of other buckets are left out where any of the last ones count."""
    for change, expected in (
        (several, ["warmup", "incomplete", "rebuild", "checked", *["counts"] * 4]),
        (last_not_whole, [*["counts"] * 6, "checked", "incomplete"]),
    ):
        write_changed(tmp_path, SMALL, lambda _, step, of=change: (of(step[0]), step[1]))
        found = [[REASONS[i] for i in own.tolist()] for own in reasons(run_in(tmp_path))]
        assert found == [expected] * 2


def test_a_steps_times_are_those_of_its_records(tmp_path: Path) -> None:
    """A step of the sample: 10 ms, two buckets 1 ms apart of 2 ms each, so 2 ms are exposed.

    Ranks whose hooks differ have both.
    """
    texts = {r: text_of(run_of(r), steps_of(9)).replace("fp16", f"{r}") for r in range(2)}
    write_ranks(tmp_path, texts)
    model = facts_of(tmp_path)
    assert model.hook == "0_compress_hook and 1_compress_hook"
    assert (model.steps, model.clock, model.exposed_share) == (9, "host", 0.2)
    found = (model.period, model.exposed, model.communication_ns)
    assert found == (Spread(10 * MS, 10 * MS), Spread(2 * MS, 2 * MS), 3 * MS)
    assert model.overlap == pytest.approx(1 / 3)
    assert (model.gradient_bytes, model.wire_bytes) == (8_000, 4_000)
    first, last = model.buckets
    assert first.stages == {
        "compress": 0.1 * MS, "queue": 0.4 * MS, "wire": 1 * MS, "decompress": 0.5 * MS,
    }  # fmt: skip
    assert (first.ready_ns, last.ready_ns) == (0, 1 * MS)
    assert (first.exposed_share, last.exposed_share) == (0.5, 0.5)  # done 1 and 2 ms after backward
    assert first.busbw_bytes_per_second == pytest.approx(2_000 / 1e-3)


def test_what_nobody_knows_is_masked(tmp_path: Path) -> None:
    """Of a device without times the end; without rank 0 and clocks the clock to tell times in."""

    def untimed(completed: CompletedStep) -> CompletedStep:
        step, buckets = completed
        return step, tuple(replace(b, device_type="cuda", stages=()) for b in buckets)

    write_times(tmp_path, [[[(0, 0, 1, 20, 21)]] * 2], untimed, clocks=False)
    columns, rows = TABLES["buckets"]
    table = made(rows(run_in(tmp_path)), columns)
    begin = SyntheticJob().start_ns
    assert [table[name].tolist()[0] for name in ("called_ns", "done_ns", "duration_ns")] == [
        begin, None, None,
    ]  # fmt: skip
    record_path(tmp_path, 0).unlink()
    table = made(rows(run_in(tmp_path)), columns)
    assert table["called_ns"].tolist() == [None]
    assert table["time"].tolist() == [SyntheticJob().wall_ns + begin]


def test_what_is_not_known_of_other_collectives(tmp_path: Path) -> None:
    """More than are listed leave the time unknown; a step without its line DDP's bytes."""
    write_others(tmp_path, collective(10, 5), more=2, more_bytes=10)
    found = other_traffic(run_in(tmp_path))
    assert found is not None
    assert (found.count, found.wire_bytes, found.in_flight_ns) == (3, 4010, None)
    drop(tmp_path, [0, 1], '"kind":"step"')
    found = other_traffic(run_in(tmp_path))
    assert found is not None
    assert (found.wire_bytes, found.ddp_bytes, found.share) == (4010, None, None)


def test_of_every_tenth_step_the_buckets_are_read(tmp_path: Path) -> None:
    """All steps count, and what is said of buckets is of those, and said to be."""
    write_job(JOB, tmp_path)
    whole, part = load(find_records(tmp_path)), load(find_records(tmp_path), every=10)
    for own, all_of_it in zip(part.tracks, whole.tracks, strict=True):
        assert own.steps.step.tolist() == all_of_it.steps.step.tolist()
        assert sorted(set(own.buckets.step.tolist())) == list(range(10, 121, 10))
    (of_whole,), (model,) = (build_report(one).models for one in (whole, part))
    for name in ("steps", "period", "exposed", "overlap", "wire_bytes"):
        assert getattr(model.facts, name) == getattr(of_whole.facts, name)
    assert model.facts.bucket_steps == 12
    assert [one.rank for one in model.facts.late] == [1]
    # Arrays of buckets have no place for the steps that have none: of a long run they are most.
    assert (len(model.arrays.steps), model.arrays.detailed.called.shape[1]) == (120, 12)
    # So it is where some were not timed, of which only "done by then" is known: by their number
    # steps stand for all, or the first ones would.
    write_changed(tmp_path / "bounded", JOB, bounded)
    (bound,) = build_report(load(find_records(tmp_path / "bounded"))).models
    for name in ("steps", "period", "exposed", "buckets", "bucket_steps", "busbw_bytes_per_second"):
        assert getattr(bound.facts, name) == getattr(model.facts, name), name
    arrays = bound.arrays
    is_timed = (arrays.steps < 20) | (arrays.steps % 10 == 0)
    assert np.isfinite(arrays.ready).all()
    assert (np.isfinite(arrays.done) == is_timed[:, None]).all()
    table = load_frames(tmp_path / "bounded").steps
    assert set(table["step"][table["stands_for_all"]].tolist()) == set(range(10, 121, 10))
    # Nor does reading few buckets make the times of the first ones those of all.
    some = load(find_records(tmp_path / "bounded"), every=10)
    (few,) = build_report(some).models
    in_flight = [one.in_flight("communication") for one in (few.arrays, arrays)]
    assert np.array_equal(*in_flight, equal_nan=True)
    assert np.isnan(in_flight[0]).any()
    (said,) = build_report(part).missing
    assert said.startswith("the buckets of every 10th step alone were read (--every): what is ")


def test_what_cannot_read_is_refused(tmp_path: Path) -> None:
    no_engine = "spark://host is no engine; pass --on local, dask://HOST:PORT"
    no_step = "--every 0 keeps no step; pass 1 or more"
    for command in (["report", tmp_path], ["compare", tmp_path, tmp_path]):
        for option, said in (("--on=spark://host", no_engine), ("--every=0", no_step)):
            result = call(*command, option)
            assert (result.exit_code, said in result.stderr) == (2, True), option


def test_a_run_that_does_not_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job(SMALL, tmp_path)
    monkeypatch.setattr(files, "_A_BUCKET", 1 << 40)
    with pytest.raises(UsageError, match=r"GiB are free|are free; pass --every \d+, or more"):
        files.read_run(tmp_path)
    monkeypatch.setattr(files, "_A_BUCKET", 300)
    assert files.read_run(tmp_path).world_size == 2


@pytest.mark.slow
def test_processes_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_ranks(tmp_path, {r: text_of(run_of(r), [make_step(1)]) for r in range(3)})
    here = load(find_records(tmp_path), processes=1)
    monkeypatch.setattr("hooktrace.analysis.run.files._WORTH_IT", 0)
    there = load(find_records(tmp_path), processes=2)
    for one, other in zip(here.tracks, there.tracks, strict=True):
        assert one.records.run == other.records.run
        assert one.buckets.ready.tolist() == other.buckets.ready.tolist()


@pytest.mark.slow
@pytest.mark.long
@needs_frameworks
def test_clusters_of_dask_and_ray_read_the_same(tmp_path: Path) -> None:
    """Real ones on this machine, of two workers each: report and comparison are equal."""
    write_job(JOB, tmp_path / "a")
    write_job(dataclasses.replace(JOB, seed=1), tmp_path / "b")
    script = REPOSITORY / "tests" / "integrations" / "scripts" / "reading_clusters.py"
    check_namespaces()
    printed = run([script, tmp_path / "a", tmp_path / "b"], tmp_path, within=ALONE)
    said = json.loads(printed.splitlines()[-1])
    assert set(said) == {"local", "dask", "ray"}
    assert said["dask"] == said["ray"] == said["local"]
    assert [model["facts"]["bucket_steps"] for model in said["local"][0]["models"]] == [30]
    assert len(said["local"][1]["comparisons"]) == 1
