"""How a prediction is held beside a run; the run itself is a program's test."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from rich.console import Console

from hooktrace.analysis.report.run_files import read_run
from hooktrace.analysis.timeline import Timeline
from hooktrace.analysis.whatif.advise import advise
from hooktrace.analysis.whatif.answer import Answer
from hooktrace.analysis.whatif.choice import Choice
from hooktrace.commands.whatif.script import Script
from hooktrace.commands.whatif.verify import (
    Demo,
    Verified,
    check_subject,
    demo_command,
    print_announced,
    verified_lines,
    verify,
)
from hooktrace.records.errors import UsageError
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.whatif.answers import answer, predicted


def test_the_demo_runs_with_the_choices_hook_and_buckets(tmp_path: Path) -> None:
    """On as many ranks as the run had."""
    command = demo_command(answer(), Choice("powersgd-rank4", 2.5), 200, tmp_path)
    assert command[2:] == [
        "hooktrace", "demo", "--hook", "powersgd-rank4", "--bucket-cap-mb", "2.5", "--ranks", "2",
        "--steps", "200", "--port", "0", "--out", str(tmp_path),
    ]  # fmt: skip
    assert demo_command(answer(), Choice(), 5, tmp_path)[5:8] == [
        "allreduce", "--bucket-cap-mb", "25",
    ]  # fmt: skip


def test_how_far_off_each_was() -> None:
    """Of what was measured; outside of its interval is said."""
    one = predicted(210.0, "fp16", 5.0, error=3e-4)
    near, far = Verified(one, 205.0, 180), Verified(one, 250.0, 180)
    said = list(verified_lines(answer(one), [near, far]))
    assert said[0] == (
        "fp16, cap 5: measured 205 ms, the median of 180 steps; predicted 210 (200 to 220), "
        "2.4 % too long"
    )
    assert said[1].endswith("16.0 % too short, outside of its interval")
    assert near.fields(answer(one))["measured_ms"] == 205.0


def test_only_the_demo_can_be_verified() -> None:
    """Another model's predictions are none of the demo's."""
    with pytest.raises(UsageError, match=r"this run is of net; pass .* --verify -- torchrun"):
        check_subject(answer(), Demo(), 100)
    with pytest.raises(UsageError, match="pass --verify-steps 100 or more"):
        check_subject(answer(), Script(["torchrun"], ""), 0)


def test_a_run_without_a_settled_step_is_no_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one step nobody knows how long it took; what it left is kept, to be looked at."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = verify(advise(answer(predicted(210.0, "fp16", error=3e-4))), Written(), 1)
    with pytest.raises(UsageError, match="no step of 1 has settled; pass --verify-steps 100"):
        next(found)
    assert len(list(tmp_path.glob("hooktrace-verify-*/0"))) == 1


def test_nothing_is_kept_of_a_verification_that_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by Ctrl-C, between two runs or in one."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    subject = Written()
    found = verify(advise(answer(predicted(210.0, "fp16", error=3e-4))), subject, 40)
    next(found)
    monkeypatch.setattr(subject, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(found)
    assert list(tmp_path.iterdir()) == []


def interrupted(*_: object) -> Timeline:
    """Stand for a run in which the user presses Ctrl-C."""
    raise KeyboardInterrupt


class Written:
    """Stands for a job: writes what its ranks would have written."""

    name = "torchrun train.py"

    def __init__(self) -> None:
        self.seen: list[tuple[Choice, Path]] = []

    def run(self, answer: Answer, choice: Choice, steps: int, folder: Path) -> Timeline:
        """Write a run of a made-up job."""
        self.seen.append((choice, folder))
        write_job(SyntheticJob(ranks=2, steps=steps, model=answer.today.model), folder)
        return read_run(folder)


def test_todays_configuration_and_the_best_two_are_run() -> None:
    """Each in a folder of its own, which goes; what is about to be run is said before."""
    lossy = [
        predicted(100.0, "powersgd-rank4", 5.0, error=0.3),
        predicted(200.0, "fp16", error=3e-4),
    ]
    advised, subject = advise(answer(*lossy)), Written()
    assert len(advised.lines) == 2
    found = list(verify(advised, subject, 40))
    chosen = [choice for choice, _ in subject.seen]
    assert chosen == [Choice(), Choice("powersgd-rank4", 5.0), Choice("fp16")]
    assert [one.prediction.choice for one in found] == chosen
    assert all(one.steps > 30 for one in found)
    assert len({folder for _, folder in subject.seen}) == 3
    assert not any(folder.parent.exists() for _, folder in subject.seen)
    console = Console(width=200)
    with console.capture() as said:
        print_announced(console, advised, subject, 40)
    assert said.get() == (
        "Running torchrun train.py, 40 steps each: allreduce, cap 25; powersgd-rank4, cap 5; fp16, "
        "cap 25\n"
    )
