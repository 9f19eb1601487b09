"""Records and what follows from their fields: ``hooktrace/records`` but its tables and files."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import pytest
from msgspec.structs import replace
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from hooktrace import hooks
from hooktrace.records import late_rank
from hooktrace.records.errors import HookError
from hooktrace.records.files import find_records
from hooktrace.records.hook_names import AVERAGES, how_to_see
from hooktrace.records.job import Range, StepSpread, merged, range_of
from hooktrace.records.last_used import Bounded, LastUsed
from hooktrace.records.running_median import RunningMedian
from hooktrace.records.stall import is_stall
from hooktrace.staging.hook import hook_name
from hooktrace.tracing.ddp_average import ddp_allreduce
from tests.exporters import records_sample as sample

STEP, (BUCKET, _) = sample.make_step(1)


def test_a_bucket_s_times_by_stage() -> None:
    """The sample's: 0.1 ms compress, 0.4 queue, 1 wire, 0.5 decompress."""
    assert (BUCKET.clock, BUCKET.duration_ns, BUCKET.compression_ratio) == ("host", 2_000_000, 2.0)
    assert BUCKET.stage_totals_ns() == {
        "compress": 100_000, "queue": 400_000, "wire": 1_000_000, "decompress": 500_000,
    }  # fmt: skip
    assert (BUCKET.stage_ns("wire"), BUCKET.stage_ns("future_wait")) == (1_000_000, 0)
    assert BUCKET.busbw_bytes_per_second == (BUCKET.bus_bytes or 0) * 1e9 / 1_000_000
    assert replace(BUCKET, bus_bytes=0.0).busbw_bytes_per_second is None  # of one rank alone
    with pytest.raises(
        ValueError, match="no stage is called 'wier'; the stages are check, serialization_wait, co"
    ):
        BUCKET.stage_ns("wier")


@pytest.mark.parametrize(
    ("rate", "value", "unknown"),
    [
        ("overlap_ratio", 1 / 3, ("communication_ns", "exposed_ns")),
        ("compression_ratio", 2.0, ("wire_bytes",)),
        ("busbw_bytes_per_second", None, ("bus_bytes", "wire_in_flight_ns")),
    ],
)
def test_a_step_s_rates(rate: str, value: float | None, unknown: tuple[str, ...]) -> None:
    """Busy for 3 ms, 2 of them exposed, half of the bytes sent; without one part there is none."""
    assert STEP.counts
    expected = value or (STEP.bus_bytes or 0) * 1e9 / (STEP.wire_in_flight_ns or 0)
    assert getattr(STEP, rate) == pytest.approx(expected)
    assert [getattr(replace(STEP, **{name: None}), rate) for name in unknown] == [None] * len(
        unknown
    )


@pytest.mark.parametrize(
    ("arrivals", "uncertainty", "late"),
    [
        ((0, 5, 20), 14, 2),
        ((0, 5, 20), 15, None),
        ((20, 0), 3, 0),
        ((0, 5, 20), None, None),
        ((0,), 0, None),
        ((), 0, None),
    ],
)
def test_nobody_is_late_within_the_uncertainty(
    arrivals: tuple[int, ...], uncertainty: int | None, late: int | None
) -> None:
    """It is of the last rank's distance to the next."""
    assert late_rank(arrivals, uncertainty) == late


def test_a_stall_is_two_seconds_and_a_whole_step_beyond_the_usual() -> None:
    """Both: two seconds are little where steps take ten, and two steps are where they take ms."""
    ms = 10**6
    assert is_stall(2010 * ms, 10 * ms, 200 * ms)
    assert not is_stall(2000 * ms, 10 * ms, 200 * ms)
    assert not is_stall(5000 * ms, 1000 * ms, 4100 * ms)


def test_the_median_of_the_last_numbers_once_there_are_enough() -> None:
    """The upper one of the two in the middle; what is older does not count."""
    numbers = [random.Random(0).randrange(100) for _ in range(50)]
    running, found = RunningMedian(last=7, enough=3), []
    for number in numbers:
        running.add(number)
        found.append(running.median)
    lasts = [sorted(numbers[max(0, i - 6) : i + 1]) for i in range(2, 50)]
    assert found == [None, None, *(last[len(last) // 2] for last in lasts)]


def test_what_was_not_used_for_longest_is_forgotten() -> None:
    """An entry that is set again is as new; what went is handed back."""
    used: LastUsed[str, list[int]] = LastUsed(list, most=2)
    used.of("a").append(1)
    used.of("b").append(2)
    assert (used.of("a"), used.of("c"), len(used)) == ([1], [], 2)
    assert (used.of("a"), used.of("b")) == ([1], [])
    known: Bounded[str, int] = Bounded(2)
    known["a"], known["b"], known["a"] = 1, 2, 3
    assert (known.put("c", 4), known.put("c", 5)) == (2, None)
    assert known == {"a": 3, "c": 5}


def test_a_hooks_error_says_where_and_pickles() -> None:
    """A launcher sends it from process to process."""
    error = pickle.loads(pickle.dumps(HookError("mine", 3, "wire", "boom")))
    assert str(error) == "hook 'mine', bucket 3, stage wire: boom"
    assert (error.hook, error.bucket, error.stage, error.reason) == ("mine", 3, "wire", "boom")


def test_which_files_are_found(tmp_path: Path) -> None:
    """The logdir or the folder itself; parts in order; earlier runs and other files are not."""
    folder = tmp_path / "plugins" / "hooktrace"
    folder.mkdir(parents=True)
    first = ["rank00000.jsonl", "rank00000.part2.jsonl", "rank00000.part10.jsonl"]
    others = ["rank00000.1.jsonl", "rank0.json", "rankx.jsonl", f"rank{'9' * 20}.jsonl"]
    for name in ["rank00001.jsonl", *reversed(first), *others]:
        (folder / name).write_text("")
    for where in (tmp_path, folder):
        found = find_records(where)
        assert list(found) == [0, 1]
        assert [p.name for p in found[0]] == first
    assert find_records(tmp_path / "nowhere") == {}


def test_who_is_last_is_not_said_where_clocks_may_be_off_by_as_much() -> None:
    """Each of two clocks may be off; the order in which ranks are put together does not matter."""
    first = StepSpread(7, arrival=range_of(1000, 0), period=range_of(3, 0), period_total_ns=3)
    for uncertainty, last in ((49, 5), (50, None)):
        other = StepSpread(
            7, arrival=range_of(1100, 5), uncertainty_ns=uncertainty, period=range_of(3, 5),
            period_total_ns=3,
        )  # fmt: skip
        both = merged(first, other)
        assert both == merged(other, first)
        assert (both.arrival_delay_ns, both.last_rank) == (100, last)
        assert (both.period, both.period_mean_ns) == (Range(2, 3, 0, 3, 0), 3.0)
    assert (first.arrival_delay_ns, first.last_rank) == (None, None)


def test_advice_follows_the_hooks_that_there_are() -> None:
    """torch's, and hooktrace's of the same names; a hook of one's own is to be written."""
    wrapped = hook_name(default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook))
    for recorded, public in (
        ("powerSGD_hook", "powerSGD_hook"),
        (wrapped, "fp16_compress_wrapper"),
    ):
        assert how_to_see(recorded) == f"use hooktrace.hooks.{public} in place of torch's"
        assert hasattr(hooks, public)
    assert how_to_see("Trainer.my_hook") == "write it with @hooktrace.staged"
    assert {hook_name(hooks.allreduce_hook), hook_name(ddp_allreduce)} == AVERAGES
