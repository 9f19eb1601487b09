"""``hooktrace bench`` measures on real ranks; here one round."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hooktrace.commands.bench import cost, harness
from hooktrace.commands.bench.harness import rounds_of
from hooktrace.testing.ranks import run_ranks

pytestmark = [pytest.mark.slow, pytest.mark.long]


def _one_round(measure: Callable[[float], Any]) -> Any:
    """Measure on a rank, whose process is its own, as briefly as can be."""
    harness._LEAST_ROUNDS = 1
    return measure(0.0)


def test_rounds_are_enough_for_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of six, from the least to the most, is the first of 95 %; all else is a matter of time."""
    monkeypatch.setattr(harness, "on_all_ranks", bool)
    assert rounds_of(iter(range(100)), 0.0) == [0, 1, 2, 3, 4, 5]


def test_every_row_is_printed_and_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The cost per bucket of each kind of hook beside the noise, and that of a whole step."""

    def few(ranks: int, measure: Callable[..., Any], seconds: float) -> list[Any]:
        assert seconds > 0
        return run_ranks(ranks, _one_round, measure)

    monkeypatch.setattr(cost, "run_ranks", few)
    numbers = tmp_path / "numbers.json"
    assert cost.run(quick=True, json_path=numbers) == 0
    rows = json.loads(numbers.read_text())["rows"]
    assert [row["what"] for row in rows] == [
        "per bucket: control, the staged hook against itself",
        "per bucket: floor, a frame, two clocks, an append",
        "per bucket: staged hook, traced - untraced",
        "per bucket: torch's hook, traced - untraced",
        "per bucket: hook done at once, traced - untraced",
        "whole step: traced / untraced",
        "whole step: the same, processor time of all threads",
        "a step, untraced",
    ]
    assert {row["samples"] for row in rows} == {1}
    printed = capsys.readouterr()
    assert all(row["what"] in printed.out for row in rows)
    assert printed.err.splitlines() == [
        "measuring what tracing adds per bucket: about 15 s",
        "measuring what tracing adds to a whole step: about 38 s",
    ]
