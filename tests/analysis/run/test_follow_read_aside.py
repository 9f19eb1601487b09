"""Followers go on in other processes as they would here, or stay where they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooktrace.analysis.run import TrackFollower, processes_for, read_track
from hooktrace.analysis.run.follow import ReadingAside
from tests.analysis.run.files import run_of, steps_of, text_of
from tests.analysis.run.test_follow import rows

STEPS = 400


def followers(folder: Path, count: int) -> tuple[list[Path], list[TrackFollower]]:
    """Return files of some ranks and their followers, which have read the first portion."""
    paths = [folder / f"rank{rank:05}.jsonl" for rank in range(count)]
    made = [TrackFollower() for _ in paths]
    for rank, (path, follower) in enumerate(zip(paths, made, strict=True)):
        path.write_text(text_of(run_of(rank), steps_of(STEPS)) + "rubbish\n")
        follower.look([path])
        assert follower.read(1 << 16)
    return paths, made


@pytest.mark.slow
def test_what_others_read_is_what_is_in_the_files(tmp_path: Path) -> None:
    """With what was read here before, in its order; what is given out meanwhile is whole too."""
    paths, made = followers(tmp_path, 3)
    aside = ReadingAside(2)
    aside.begin(made, 60.0)
    before = [follower.track() for follower in made]
    assert all(0 < len(track.steps) < STEPS for track in before)
    assert aside.end()
    for path, follower in zip(paths, made, strict=True):
        whole, found = read_track([path]), follower.track()
        assert rows(found) == rows(whole)
        assert found.records == whole.records
        follower.look([path])
        assert (follower.read(1 << 16), follower.epoch) == (0, 0)


@pytest.mark.slow
def test_a_process_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time that it was given."""
    (_,), (follower,) = followers(tmp_path, 1)
    monkeypatch.setattr("hooktrace.analysis.run.follow._GRACE_S", 0.1)
    monkeypatch.setattr("hooktrace.analysis.run.follow._PROGRAM", "import time; time.sleep(600)")
    aside = ReadingAside(1)
    aside.begin([follower], 0.1)
    assert not aside.end()


def test_small_files_are_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """To start a process takes longer than to read them."""
    monkeypatch.setattr("hooktrace.analysis.run.follow.usable_cores", lambda: 4)
    assert (processes_for(1 << 20, 8), processes_for(1 << 30, 8), processes_for(1 << 30, 3)) == (
        (1, 4, 3)
    )
