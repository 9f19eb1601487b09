"""A predicted step as files: what was simulated stands in them, and that it is predicted."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooktrace.analysis.report.run_files import read_run
from hooktrace.analysis.timeline import load
from hooktrace.analysis.whatif.predicted_run import MOST_STEPS, write_predicted
from hooktrace.records.errors import UsageError
from hooktrace.records.files import find_records
from hooktrace.records.reader import read_parts
from tests.analysis.report.test_command import call

from .answers import predicted
from .predicted import RUN, two_buckets


def write(logdir: Path, steps: range) -> None:
    """Write the prediction for some steps."""
    write_predicted(logdir, RUN, two_buckets(), model="net", hook="powersgd", steps=steps)


def test_the_files_say_what_was_simulated(tmp_path: Path) -> None:
    """Steps end to end under the run's own numbers, stages of each round, all of them derived."""
    write(tmp_path, range(7, 10))
    records = read_parts(find_records(tmp_path)[0])
    assert records.run is not None
    assert (records.run.predicted, records.run.world_size, records.run.rank) == (True, 8, 0)
    assert [s.step for s in records.steps] == [7, 8, 9]
    assert {s.hook for s in records.steps} == {"powersgd (predicted)"}
    assert [s.previous_period_ns for s in records.steps] == [None, 100_000_000, 100_000_000]
    assert {s.exposed_ns for s in records.steps} == {8_000_000}
    first, second = (b for b in records.buckets if b.step == 8)
    assert (first.ready_ns, first.done_ns, first.numel) == (100_000_000, 150_000_000, 250_000)
    spent = [(s.name, (s.end_ns - s.start_ns) // 10**6, s.derived) for s in first.stages]
    assert spent == [
        ("compress", 2, True), ("wire", 28, True), ("compress", 1, True), ("queue", 1, True),
        ("wire", 15, True), ("decompress", 3, True),
    ]  # fmt: skip
    assert [(s.name, (s.end_ns - s.start_ns) // 10**6) for s in second.stages] == [
        ("turn", 10), ("compress", 2), ("wire", 5), ("decompress", 3),
    ]  # fmt: skip
    assert (first.wire_bytes, first.bus_bytes) == (10_000, 17_500.0)
    assert records.layouts[0].buckets[1].parameters == (("layers.0.weight", (500, 500)),)


def test_nothing_else_takes_it_for_a_measurement(tmp_path: Path) -> None:
    """A report, a comparison and whatever else reads runs refuses it."""
    write(tmp_path, range(3))
    assert load(find_records(tmp_path)).models == ["net"]
    with pytest.raises(UsageError, match="predicted, not measured"):
        read_run(tmp_path)


@pytest.mark.parametrize("command", ["report", "compare"])
def test_nor_do_summaries(tmp_path: Path, command: str) -> None:
    """Those of ``--on``, which read ranks by themselves."""
    write(tmp_path, range(3))
    runs = [tmp_path] if command == "report" else [tmp_path, tmp_path]
    shown = call(command, *runs, "--on", "local:1")
    assert shown.exit_code == 2
    assert "predicted, not measured" in shown.output


def test_a_run_is_never_overwritten_and_long_ones_are_cut(tmp_path: Path) -> None:
    """The last steps of a long run are enough to lie below."""
    write(tmp_path, range(1000))
    found = read_parts(find_records(tmp_path)[0]).steps
    assert [found[0].step, found[-1].step, len(found)] == [950, 999, MOST_STEPS]
    with pytest.raises(UsageError, match="already"):
        write(tmp_path, range(3))


def test_what_does_not_say_what_was_simulated_cannot_be_written(tmp_path: Path) -> None:
    """Rather than a file without buckets."""
    with pytest.raises(ValueError, match="simulated"):
        write_predicted(tmp_path, RUN, predicted(1.0), model="net", hook="fp16", steps=[1])
