"""How a prediction is held beside a run; the run itself is a program's test."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooktrace.analysis.whatif.advise import advise
from hooktrace.analysis.whatif.choice import Choice
from hooktrace.commands.whatif.verify import Verified, demo_command, verified_lines, verify
from hooktrace.records.errors import UsageError
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
    with pytest.raises(UsageError, match="this run is of net"):
        verify(advise(answer(predicted(210.0, "fp16", error=3e-4))), 100)
