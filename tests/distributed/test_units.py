"""The tab, of sharded models that real ranks trained: every unit, and where it was exposed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hooktrace.analysis.run import STAGE_NAMES, UNKNOWN, load
from hooktrace.analysis.tensorboard_plugin.scene import Scene, scene_of
from hooktrace.analysis.tensorboard_plugin.selection import selection
from hooktrace.records import BucketRecord
from hooktrace.records.files import find_records
from tests.analysis.run.files import run_of, text_of, write_ranks
from tests.distributed import sharded_scenarios
from tests.distributed.harness import Ranks
from tests.distributed.sharded_scenarios import FOUR, SETUPS

pytestmark = pytest.mark.slow

KINDS = ["all-gather fwd", "all-gather bwd", "reduce-scatter"]


def scene_from(folder: Path, ranks: list[dict[str, Any]]) -> Scene:
    """Return the scene of what ranks recorded."""
    texts = {}
    for rank, facts in enumerate(ranks):
        steps = [
            (step, tuple(b for b in facts["buckets"] if b.step == step.step))
            for step in facts["steps"]
        ]
        texts[rank] = text_of(run_of(rank, world_size=len(ranks)), steps)
    write_ranks(folder, texts)
    return scene_of(load(find_records(folder)), "net")


def check(scene: Scene, ranks: list[dict[str, Any]], *, synchronous: bool = True) -> None:
    """What holds of each sharded run; of an asynchronous gather what outlasts it is not drawn."""
    assert len(scene.ranks) == len(ranks)
    for rank, facts in zip(scene.ranks, ranks, strict=True):
        buckets: list[BucketRecord] = facts["buckets"]
        assert {str(scene.units[i]) for i in rank.unit} == {str(b.unit) for b in buckets}
        spans = rank.exposed_at
        lengths = (spans.end - spans.start).tolist()
        assert sum(lengths) == sum(min(b.exposed_ns or 0, b.done_ns - b.ready_ns) for b in buckets)
        if synchronous:
            assert (spans.start[1:] >= spans.end[:-1]).all()  # one thread waits for one at a time
            assert sum(lengths) == sum(step.exposed_ns for step in facts["steps"])
    told = selection(scene, 0, scene.extent + 1)
    exposed = sum(s.exposed_ns for facts in ranks for s in facts["steps"])
    assert told["exposed"] == exposed or (told["exposed"] < exposed and not synchronous)
    assert told["buckets_counted"] == sum(len(facts["buckets"]) for facts in ranks)


@pytest.mark.parametrize("name", SETUPS)
def test_every_setup_is_shown(two: Ranks, tmp_path: Path, name: str) -> None:
    """Exposed stretches add up to the step's, and never overlap."""
    ranks = [facts[name] for facts in two.read(sharded_scenarios.all_setups)]
    scene = scene_from(tmp_path, ranks)
    check(scene, ranks, synchronous=name != "asynchronous")
    expected = [KINDS[0], KINDS[2]] if name == "not resharded" else KINDS
    assert [title for title in scene.titles if title] == expected


@pytest.mark.parametrize("name", FOUR)
def test_hybrid_sharding_is_shown(four: Ranks, tmp_path: Path, name: str) -> None:
    """Its all-reduces have a row of their own, and waits in a part of the ranks are known."""
    ranks = [facts[name] for facts in four.read(sharded_scenarios.hybrid_setups)]
    scene = scene_from(tmp_path, ranks)
    check(scene, ranks)
    replicated = [] if name == "resharded to two" else ["all-reduce"]
    assert [title for title in scene.titles if title] == [*KINDS, *replicated]
    assert scene.waits.why_unknown is None
    for rank, own in enumerate(scene.ranks):
        assert (own.waited[own.track.stages.name == STAGE_NAMES.index("wire")] != UNKNOWN).all()
        for facts in own.track.facts:
            assert facts.members is not None
            assert rank in range(*facts.members)
