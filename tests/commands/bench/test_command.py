"""The groups of a benchmark, the table that it prints, and the file of its numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hooktrace.commands.bench import command
from hooktrace.commands.bench.table import Row


class FakeGroup:
    what = "made up"

    def __init__(self, *rows: Row, error: str = "") -> None:
        self.rows = rows
        self.error = error

    def run(self, *, quick: bool) -> Iterator[Row]:
        assert quick
        yield from self.rows
        if self.error:
            raise RuntimeError(self.error)


FAKES = {
    "first": FakeGroup(Row("one", [3.0] * 9, "µs", budget=2.0), error="no device [0]"),
    "second": FakeGroup(Row("two", [0.5] * 9, "ratio", note="half")),
}


def test_a_group_that_fails_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its rows so far and its error are shown, the exit code is 1; the file has all rows."""
    monkeypatch.setattr(command, "chosen", lambda names: {name: FAKES[name] for name in names})
    numbers = tmp_path / "numbers.json"
    assert command.run(["first", "second"], quick=True, json_path=numbers) == 1
    lines = capsys.readouterr().out.splitlines()
    shown = [line.split() for line in lines if line.startswith(("one", "two"))]
    assert shown == [
        ["one", "3", "3", "to", "3", "2", "µs", "over"],
        ["two", "0.5", "0.5", "to", "0.5", "ratio", "-", "half"],
    ]
    assert "first could not be measured: no device [0]" in lines
    rows = json.loads(numbers.read_text())["rows"]
    assert [(row["group"], row["what"], row["verdict"]) for row in rows] == [
        ("first", "one", "over"),
        ("second", "two", "-"),
    ]


def test_lines_fit_a_terminal_of_120_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """Without their notes."""
    row = Row("w" * 62, [-123.456, 1234.5, 99999.0] * 4, "µs/bucket", budget=12345.0)
    assert len(command.line_of(row)) <= 120
