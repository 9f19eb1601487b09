"""Files that grow are read on; replaced ones begin anew."""

from __future__ import annotations

import os
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hooktrace.analysis.run import RankTrack, TrackFollower
from hooktrace.analysis.run.read import read_track
from tests.analysis.run.files import run_of, steps_of, text_of


def rows(track: RankTrack) -> list[list[int]]:
    return [
        getattr(columns, name).tolist()
        for columns in (track.buckets, track.stages, track.steps)
        for name in columns.__dataclass_fields__
    ]


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(0, 20_000), max_size=6), most=st.integers(2_000, 40_000))
def test_portions_give_what_the_whole_file_gives(cuts: list[int], most: int) -> None:
    """Wherever the writer was when the reader looked, and however little it reads at once."""
    text = text_of(run_of(0), steps_of(8)) + "rubbish\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank00000.jsonl"
        follower = TrackFollower()
        for cut in [*sorted(min(c, len(text)) for c in cuts), len(text)]:
            path.write_text(text[:cut])  # the same inode, longer
            follower.look([path])
            while follower.read(most):
                pass
        found, whole = follower.track(), read_track([path])
        assert rows(found) == rows(whole)
        assert found.records == whole.records
        assert follower.read_bytes == follower.total_bytes == len(text)


def test_a_replaced_file_begins_anew(tmp_path: Path) -> None:
    """A second run in the same place, longer than the first: nothing of the first stays."""
    path = tmp_path / "file"
    path.write_text(text_of(run_of(0), steps_of(2)))
    follower = TrackFollower()
    follower.look([path])
    while follower.read(1 << 20):
        pass
    other = tmp_path / "other"
    other.write_text(text_of(run_of(0, run_id="second"), steps_of(5)))
    os.replace(other, path)
    follower.look([path])
    while follower.read(1 << 20):
        pass
    track = follower.track()
    assert len(track.steps) == 5
    assert track.records.run is not None
    assert track.records.run.run_id == "second"


def test_rows_are_added_at_the_end_of_those_that_are_there(tmp_path: Path) -> None:
    """And not copied, but for when there is no room any more; each byte is read once."""
    path, whole = tmp_path / "file", text_of(run_of(0), steps_of(64), ended=False)
    steps = [i for i, line in enumerate(whole.splitlines(), 1) if '"kind":"step"' in line]
    follower, tracks, read = TrackFollower(), [], 0
    for count in steps:
        path.write_text("".join(whole.splitlines(keepends=True)[:count]))
        follower.look([path])
        while portion := follower.read(1 << 20):
            read += portion
        tracks.append(follower.track())
        assert follower.track() is tracks[-1]
    assert read == path.stat().st_size
    copies = sum(
        not np.shares_memory(before.buckets.called, after.buckets.called)
        for before, after in pairwise(tracks)
    )
    assert copies <= 6
    assert [len(track.steps) for track in tracks] == list(range(1, 65))
    assert rows(tracks[-1]) == rows(read_track([path]))
