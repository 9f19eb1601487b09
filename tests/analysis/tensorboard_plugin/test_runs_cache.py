"""Runs in memory: read in turns, and the last ones are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooktrace.analysis.tensorboard_plugin.runs import Runs, readers
from tests.analysis.run.files import run_of, steps_of, text_of, write_ranks


def test_a_large_run_is_read_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank a portion at least, whatever the budget; then the rest."""
    monkeypatch.setattr("hooktrace.analysis.run.follow._PORTION", 1 << 15)
    write_ranks(tmp_path, {r: text_of(run_of(r), steps_of(60)) for r in range(3)})
    reader = readers(Runs(tmp_path).files)(".")
    first = reader.refresh(0.0)
    sizes = [len(t.steps) for t in first.run.tracks]
    assert all(0 < size < 60 for size in sizes)
    assert first.read_bytes < first.total_bytes
    assert reader.latest(100.0) is first
    whole = reader.refresh(100.0)
    assert [len(t.steps) for t in whole.run.tracks] == [60, 60, 60]
    assert (whole.version, whole.read_bytes) == (first.version + 1, whole.total_bytes)
    assert reader.refresh(100.0) is whole


def test_only_some_runs_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        write_ranks(tmp_path / name, {0: text_of(run_of(0), steps_of(1))})
    monkeypatch.setattr("hooktrace.analysis.tensorboard_plugin.runs._KEPT", 2)
    reader = readers(Runs(tmp_path).files)
    a, b = reader("a"), reader("b")
    assert reader("a") is a
    reader("c")
    assert reader("a") is a
    assert reader("b") is not b
