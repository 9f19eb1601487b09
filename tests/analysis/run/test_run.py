"""Ranks whose clocks are seconds apart and drift, side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from hooktrace.analysis.run import RankClock, Run, delays, load
from hooktrace.analysis.run.columns import UNKNOWN
from hooktrace.records import CLOCK_DRIFT, ClockRecord
from hooktrace.records.files import find_records, record_path
from tests.analysis.run.files import moved, run_of, steps_of, text_of, write_ranks
from tests.analysis.runs import run_in
from tests.exporters.records_sample import HOST_ANCHOR_NS, MODEL, STEP_NS, make_step

MS = 1_000_000
S = 1_000_000_000


def clock(time_ns: int, offset_ns: int, uncertainty_ns: int = 20_000) -> ClockRecord:
    return ClockRecord(
        time_ns=time_ns,
        offset_ns=offset_ns,
        uncertainty_ns=uncertainty_ns,
        round_trip_ns=2 * uncertainty_ns,
        pings=32,
    )


def delays_in(run: Run) -> list[list[int]]:
    """Return by how many ns the calls of each rank came after the first one."""
    return [own.ns.tolist() for own in delays(run, MODEL)]


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
    run = run_in(tmp_path)
    assert run.unaligned == []
    found = delays(run, MODEL)
    assert [len(own.ns) for own in found] == [400, 400]
    assert {ns for own in found for ns in own.ns.tolist()} <= {0, 1, 2}  # of rounding
    assert {ns for own in found for ns in own.unsure.tolist()} <= {0, 20_000}


def test_a_delay_is_off_by_what_both_clocks_are(tmp_path: Path) -> None:
    """Rank 2 of 3 comes late, at bucket 1 of step 1 only, and rank 1 first there."""
    texts = {}
    for rank in range(3):
        steps = steps_of(3)
        step, (first, second) = steps[1]
        late = {0: 1000, 1: 0, 2: 50_000}[rank]
        steps[1] = step, (first, replace(second, ready_ns=second.ready_ns + late))
        steps = [moved(s, lambda t, r=rank: t - r * S) for s in steps]  # type: ignore[misc]
        clocks = [clock(HOST_ANCHOR_NS + i * S - rank * S, rank * S) for i in range(2)]
        texts[rank] = text_of(run_of(rank), steps, clocks=clocks if rank else ())
    write_ranks(tmp_path, texts)
    found = delays(run_in(tmp_path), MODEL)
    assert [own.ns.tolist() for own in found] == [
        [0, 0, 0, late, 0, 0] for late in (1000, 0, 50_000)
    ]
    assert [own.unsure[3] for own in found] == [20_000, 0, 40_000]


def test_a_clock_that_nobody_measured_is_said_to_be_unknown(tmp_path: Path) -> None:
    """It is placed by its wall clock, and no rank is after another one by it."""
    info = run_of(1, offset_ns=5 * S, wall_error_ns=3 * MS)
    steps = [moved(s, lambda t: t - 5 * S + 2 * MS) for s in steps_of(2)]
    write_ranks(tmp_path, {0: text_of(run_of(0), steps_of(2)), 1: text_of(info, steps)})
    run = run_in(tmp_path)
    assert run.unaligned == [1]
    ready = [clock.common(track.buckets.called) for track, clock in run.ranks]
    assert set(ready[1] - ready[0]) == {5 * MS}
    assert delays_in(run) == [[UNKNOWN] * 4] * 2


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


def test_a_rank_is_after_none_that_lacks_the_bucket(tmp_path: Path) -> None:
    """Whose file was cut off, or its detail was not kept."""
    clocks = [clock(HOST_ANCHOR_NS, 0)]
    write_ranks(
        tmp_path,
        {
            0: text_of(run_of(0), steps_of(3)),
            1: text_of(run_of(1), steps_of(2), clocks=clocks),
        },
    )
    assert delays_in(run_in(tmp_path)) == [[0] * 4 + [UNKNOWN] * 2, [0] * 4]


def test_a_job_that_was_started_again_on_fewer_ranks(tmp_path: Path) -> None:
    """The newest run is shown, and not the one that most files are of."""
    texts = {rank: text_of(run_of(rank, run_id="older"), steps_of(1)) for rank in range(4)}
    now = run_of(0)
    again = replace(now, wall_anchor_ns=now.wall_anchor_ns + 1)
    write_ranks(tmp_path, {**texts, 0: text_of(again, steps_of(1))})
    run = run_in(tmp_path)
    assert [t.rank for t in run.tracks] == [0]
    assert [t.rank for t in run.other_runs] == [1, 2, 3]


def test_an_empty_file_is_no_rank(tmp_path: Path) -> None:
    """Of a process that was killed before its first line: nothing is known of its rank."""
    write_ranks(tmp_path, {0: text_of(run_of(0), steps_of(3))})
    for nothing in (b"", b'{"kind":"run","run_id":"3f'):
        record_path(tmp_path, 1).write_bytes(nothing)
        run = run_in(tmp_path)
        assert [track.rank for track in run.tracks] == [0]
        assert run.unaligned == []


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


def test_a_file_without_its_first_line_is_of_the_rank_that_it_names(tmp_path: Path) -> None:
    write_ranks(tmp_path, {rank: text_of(run_of(rank), steps_of(3)) for rank in range(2)})
    path = record_path(tmp_path, 1)
    path.write_bytes(path.read_bytes().split(b"\n", 1)[1])
    run = run_in(tmp_path)
    assert [track.rank for track in run.tracks] == [0, 1]
    assert run.unaligned == [1]


def test_no_files_make_an_empty_timeline() -> None:
    run = load({})
    assert (run.tracks, run.model_names, run.unaligned) == ([], [], [])
    assert run.info is None
    assert delays(run, "any") == []


@pytest.mark.slow
def test_processes_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_ranks(tmp_path, {r: text_of(run_of(r), [make_step(1)]) for r in range(3)})
    traces = find_records(tmp_path)
    here = load(traces, processes=1)
    monkeypatch.setattr("hooktrace.analysis.run.engines._WORTH_IT", 0)
    there = load(traces, processes=2)
    for one, other in zip(here.tracks, there.tracks, strict=True):
        assert one.records.run == other.records.run
        assert one.buckets.ready.tolist() == other.buckets.ready.tolist()
