"""``hooktrace bench`` measures on real ranks; here one round."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hooktrace.commands.bench import cost
from hooktrace.commands.bench.harness import run_ranks

pytestmark = pytest.mark.slow


def test_every_row_is_printed_and_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The cost per bucket of each kind of hook beside the noise, and that of a whole step."""

    def few(ranks: int, measure: Callable[..., Any], rounds: int) -> list[Any]:
        assert rounds >= 20
        return run_ranks(ranks, measure, 1)

    monkeypatch.setattr(cost, "run_ranks", few)
    numbers = tmp_path / "numbers.json"
    assert cost.run(quick=True, json_path=numbers) == 0
    rows = json.loads(numbers.read_text())["rows"]
    assert [row["what"] for row in rows] == [
        "per bucket: control, the staged hook against itself",
        "per bucket: staged hook, traced - untraced",
        "per bucket: torch's hook, traced - untraced",
        "per bucket: hook done at once, traced - untraced",
        "whole step: traced / untraced",
        "whole step: the same, processor time of all threads",
        "a step, untraced",
    ]
    assert {row["samples"] for row in rows} == {1}
    printed = capsys.readouterr().out
    assert all(row["what"] in printed for row in rows)
