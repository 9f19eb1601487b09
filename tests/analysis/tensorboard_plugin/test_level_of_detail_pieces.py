"""Wait and transfer of wire stages apart, and who waited for whom: as the job was made."""

from __future__ import annotations

import numpy as np
import pytest

from hooktrace.analysis.tensorboard_plugin.level_of_detail import collectives, pieces_of
from hooktrace.analysis.tensorboard_plugin.scene import KINDS, Scene
from hooktrace.testing.synthetic import SyntheticJob
from tests.analysis.runs import job_run, tab_of

JOB = SyntheticJob(ranks=4, steps=6, late_ms={2: 12.0}, jitter_ms=0.0)
WIRE, WAIT = KINDS.index("wire"), KINDS.index("wait")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return tab_of(job_run(JOB, tmp_path_factory.mktemp("run")))


def test_a_wire_stage_that_waited_is_two_pieces(scene: Scene) -> None:
    """The wait first, 12 ms of it; on the late rank the stage is as it was."""
    every = np.arange(len(scene.ranks[0].buckets.row))
    waited, late = pieces_of(scene.ranks[0], every), pieces_of(scene.ranks[2], every)
    waits = np.flatnonzero(waited.kind == WAIT)
    assert len(waits) == len(every)
    assert (waited.kind[waits + 1] == WIRE).all()
    assert (waited.end[waits] == waited.start[waits + 1]).all()
    assert ((waited.end - waited.start)[waits] == 12_000_000).all()
    assert WAIT not in late.kind
    assert (waited.counts == late.counts + 1).all()
    assert waited.counts.sum() == len(waited.kind)


def test_a_collective_leads_from_the_last_rank_to_all_that_waited(scene: Scene) -> None:
    bars = [(rank, np.arange(len(rank.buckets.row))) for rank in scene.ranks]
    found = collectives(bars)
    assert len(found) == 6 * 8
    for one in found:
        assert one["last"] == 2
        assert [w["rank"] for w in one["waiting"]] == [0, 1, 3]
        assert all(w["start"] < w["at"] == one["at"] for w in one["waiting"])
        assert one["lane"] == one["bucket"]


def test_where_the_last_rank_is_out_of_sight_it_is_still_named(scene: Scene) -> None:
    bars = [(scene.ranks[0], np.arange(8))]
    (first, *_) = collectives(bars)
    assert (first["last"], first["at"]) == (2, None)
