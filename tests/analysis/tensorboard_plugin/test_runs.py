"""Which runs are found, no file outside the logdir; they are read in turns, the last ones kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooktrace.analysis.tensorboard_plugin.runs import NotThereError, Runs, readers
from tests.analysis.run.files import run_of, steps_of, text_of, write_ranks

TEXT = text_of(run_of(0), steps_of(1))


def test_runs_at_any_depth(tmp_path: Path) -> None:
    for name in (".", "a", "b/c"):
        write_ranks(tmp_path / name, {0: TEXT})
    (tmp_path / "empty/plugins/hooktrace").mkdir(parents=True)
    assert Runs(tmp_path).names() == [".", "a", "b/c"]
    assert Runs(None).names() == []
    assert Runs(tmp_path / "nowhere").names() == []


def test_a_name_is_looked_up_and_never_a_path(tmp_path: Path) -> None:
    write_ranks(tmp_path / "logs/a", {0: TEXT})
    write_ranks(tmp_path / "secret", {0: TEXT})
    runs = Runs(tmp_path / "logs")
    assert list(runs.files("a")) == [0]
    for name in ("../secret", str(tmp_path / "secret"), "a/../../secret", "a/", "", "A"):
        with pytest.raises(NotThereError):
            runs.files(name)


def test_links_out_of_the_logdir_are_not_followed(tmp_path: Path) -> None:
    """Whichever part of the path is the link; links inside are."""
    logs = tmp_path / "logs"
    write_ranks(tmp_path / "secret", {0: TEXT})
    outside = tmp_path / "secret/plugins/hooktrace/rank00000.jsonl"
    write_ranks(logs / "run", {0: TEXT})
    folder = logs / "run/plugins/hooktrace"
    (folder / "rank00001.jsonl").symlink_to(outside)
    (folder / "rank00002.jsonl").symlink_to(folder / "rank00000.jsonl")
    (logs / "whole").symlink_to(tmp_path / "secret")
    (logs / "up").symlink_to(logs)
    (logs / "plugins").symlink_to(tmp_path / "secret/plugins")
    deep = logs / "deep/plugins"
    deep.mkdir(parents=True)
    (deep / "hooktrace").symlink_to(tmp_path / "secret/plugins/hooktrace")
    runs = Runs(logs)
    assert runs.names() == ["run"]
    assert list(runs.files("run")) == [0, 2]


def test_a_logdir_that_is_a_link_is_the_user_s_choice(tmp_path: Path) -> None:
    write_ranks(tmp_path / "real/a", {0: TEXT})
    (tmp_path / "link").symlink_to(tmp_path / "real")
    runs = Runs(tmp_path / "link")
    assert runs.names() == ["a"]
    assert list(runs.files("a")) == [0]


def test_new_runs_are_seen_after_a_while(tmp_path: Path) -> None:
    now = 0.0
    runs = Runs(tmp_path, clock=lambda: now)
    assert runs.names() == []
    write_ranks(tmp_path / "a", {0: TEXT})
    now = 4.0
    assert runs.names() == []
    now = 5.0
    assert runs.names() == ["a"]


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
        write_ranks(tmp_path / name, {0: TEXT})
    monkeypatch.setattr("hooktrace.analysis.tensorboard_plugin.runs._KEPT", 2)
    reader = readers(Runs(tmp_path).files)
    a, b = reader("a"), reader("b")
    assert reader("a") is a
    reader("c")
    assert reader("a") is a
    assert reader("b") is not b
