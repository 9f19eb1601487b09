"""A sharded run in the tab: rows by kind, names, where training waited, and no word of buckets."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from hooktrace.analysis.tensorboard_plugin.bucket_detail import bucket_detail, row_of
from hooktrace.analysis.tensorboard_plugin.level_of_detail import picture
from hooktrace.analysis.tensorboard_plugin.run_summary import summary_of
from hooktrace.analysis.tensorboard_plugin.scene import Scene
from hooktrace.analysis.tensorboard_plugin.search import search
from hooktrace.analysis.tensorboard_plugin.selection import selection
from hooktrace.analysis.tensorboard_plugin.units import kind_words
from hooktrace.records import CompletedStep, DeviceSpan, ErrorRecord, Unit
from hooktrace.testing.synthetic import SyntheticJob
from hooktrace.testing.synthetic_shards import ShardedJob, sharded_steps
from tests.analysis.runs import job_run, run_in, tab_of

from ..run.files import text_of, write_ranks

MS = 1_000_000
HYBRID = ShardedJob(ranks=4, replicas=2, steps=12, late_ms={3: 4.0})
PLAIN = ShardedJob(ranks=2, steps=3, micro_steps=2)


def scene_from(folder: Path, job: ShardedJob) -> Scene:
    return tab_of(job_run(job, folder))


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return scene_from(tmp_path_factory.mktemp("hybrid"), HYBRID)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return scene_from(tmp_path_factory.mktemp("plain"), PLAIN)


def test_rows_are_by_kind_and_kinds_that_are_not_there_take_no_room(
    hybrid: Scene, plain: Scene
) -> None:
    """Of replicas there is one more; the same unit is in a row each for what is done with it."""
    kinds = ["all-gather fwd", "all-gather bwd", "reduce-scatter", "all-reduce"]
    assert hybrid.titles == kinds
    assert (plain.titles, plain.lanes) == (kinds[:3], 3)
    for rank in hybrid.ranks:
        units = [hybrid.units[i] for i in rank.unit]
        assert [kinds[row] for row in rank.lane] == [
            f"all-gather {'fwd' if u.phase == 'forward' else 'bwd'}"
            if u.collective == "all_gather"
            else u.collective.replace("_", "-")
            for u in units
        ]


def test_what_is_under_way_at_once_has_a_row_each(tmp_path: Path) -> None:
    """Asked for asynchronously a second gather begins before the first has ended."""
    made = [_overlapping(ranks[0]) for ranks in sharded_steps(PLAIN)]
    write_ranks(tmp_path, {0: text_of(PLAIN.run(0), made)})
    scene = tab_of(run_in(tmp_path))
    assert scene.titles == ["all-gather fwd", "", "all-gather bwd", "reduce-scatter"]
    assert scene.ranks[0].lane[:3].tolist() == [0, 1, 0]


def _overlapping(step: CompletedStep) -> CompletedStep:
    record, (first, second, *others) = step
    return record, (replace(first, done_ns=second.ready_ns + 1), second, *others)


def test_exposed_time_is_where_each_unit_was_waited_for(plain: Scene) -> None:
    """Not at the step's end: gathers of the forward pass are exposed too, and sum up to it."""
    for rank in plain.ranks:
        spans, steps = rank.exposed_at, rank.steps
        assert spans.start.tolist() == rank.buckets.start.tolist()
        for begun, ended, exposed in zip(steps.start, steps.end, rank.exposed, strict=True):
            own = (spans.start >= begun) & (spans.end <= ended)
            assert int((spans.end - spans.start)[own].sum()) == exposed


def test_of_an_asynchronous_collective_issuing_and_waiting_are_exposed(tmp_path: Path) -> None:
    """What lies between is hidden; of one whose wait is not known nothing is drawn."""
    job = ShardedJob(ranks=1, steps=1)
    record, (first, second, *others) = next(sharded_steps(job))[0]
    issued = replace(first, launched_ns=first.ready_ns + MS // 10, exposed_ns=MS // 2)
    unknown = replace(second, exposed_ns=None)
    step = replace(record, exposed_ns=None), (issued, unknown, *others)
    write_ranks(tmp_path, {0: text_of(job.run(0), [step])})
    scene = tab_of(run_in(tmp_path))
    spans, zero = scene.ranks[0].exposed_at, first.ready_ns - scene.origin
    assert (spans.start[:2] - zero).tolist() == [0, MS - MS * 4 // 10]
    assert (spans.end[:2] - zero).tolist() == [MS // 10, MS]
    assert not (spans.row == 1).any()
    said = dict(bucket_detail(scene, 0, 1)["times"])["exposed"]
    assert said == "not known: its record does not say what training waited for it"
    assert dict(bucket_detail(scene, 0, 0)["times"])["exposed"] == "0.500 ms"


def test_on_a_device_the_end_of_a_collective_is_exposed(tmp_path: Path) -> None:
    """To issue it keeps nothing; until the computing stream waits it is hidden."""
    job = ShardedJob(ranks=1, steps=1)
    record, (first, *others) = next(sharded_steps(job))[0]
    on_device = replace(
        first, device_type="cuda", device=DeviceSpan(ready_ns=0, done_ns=MS, stages=()),
        launched_ns=first.ready_ns + MS // 10, exposed_ns=MS * 4 // 10,
    )  # fmt: skip
    write_ranks(tmp_path, {0: text_of(job.run(0), [(record, (on_device, *others))])})
    spans = tab_of(run_in(tmp_path)).ranks[0].exposed_at
    assert (spans.start[0], spans.end[0]) == (MS * 6 // 10, MS)


def test_units_are_the_same_on_ranks_that_number_them_otherwise(tmp_path: Path) -> None:
    """A rank numbers collectives as it meets them."""
    job = ShardedJob(ranks=2, steps=2)
    for rank in range(2):
        steps = [
            (step, tuple(replace(call, bucket=call.bucket + 3 * rank) for call in calls))
            for step, calls in (ranks[rank] for ranks in sharded_steps(job))
        ]
        write_ranks(tmp_path, {rank: text_of(job.run(rank), steps)})
    scene = tab_of(run_in(tmp_path))
    rows = selection(scene, 0, scene.extent)["buckets"]
    assert [(row["name"], row["count"]) for row in rows] == [(str(u), 4) for u in job.slots()]
    assert [r.lane.tolist() for r in scene.ranks] == [scene.ranks[0].lane.tolist()] * 2


def test_a_wide_picture_does_not_look_as_if_all_were_exposed(plain: Scene) -> None:
    """A bin has the share that is; all of them add up to the exposed time."""
    t1 = plain.extent
    drawn = picture(plain, 0, t1, 30)["ranks"][0]["exposed"]
    shares = np.array(drawn["share"])
    assert 0 < shares.min() <= shares.max() < 100
    length = (np.array(drawn["end"]) - np.array(drawn["start"])) * shares / 100
    assert length.sum() == pytest.approx(plain.ranks[0].exposed.sum(), rel=0.05)
    near = picture(plain, 0, t1, 20_000)["ranks"][0]["exposed"]
    assert set(near["share"]) == {100}
    ns = np.array(near["end"]) - np.array(near["start"])
    assert ns.sum() == plain.ranks[0].exposed.sum()


def test_of_buckets_the_end_of_each_step_is_exposed(tmp_path: Path) -> None:
    """As ever, however narrow it is."""
    scene = tab_of(job_run(SyntheticJob(ranks=1, steps=9), tmp_path))
    drawn = picture(scene, 0, scene.extent, 10)["ranks"][0]
    assert drawn["exposed"]["end"] == drawn["steps"]["end"]
    assert drawn["exposed"]["share"] == [100] * 9
    assert (scene.titles, set(drawn["bars"]["unit"])) == (
        [],
        {-1} if drawn["bars"]["unit"] else set(),
    )


def test_a_collective_says_its_unit_kind_and_exposed_time(hybrid: Scene) -> None:
    """In the tooltip and aloud; an all-gather's bytes are parameters."""
    detail = bucket_detail(hybrid, 1, row_of(hybrid, 1, 2, 1))
    assert detail["title"] == "blocks.0 all-gather (forward), step 2, rank 1"
    assert ["unit", "blocks.0"] in detail["what"]
    assert ["kind", "all-gather, forward pass"] in detail["what"]
    assert dict(detail["times"]) == {
        "begun to done": "1.000 ms", "exposed": "1.000 ms",
        "begun at": dict(detail["times"])["begun at"],
    }  # fmt: skip
    assert detail["bytes"][0] == ["this rank's parameters", "2 MB"]
    assert detail["spoken"].startswith(
        "rank 1, step 2, blocks.0 all-gather (forward): 1.00 ms, all of it exposed, wire 1.00 ms"
    )
    scatter = hybrid.units.index(Unit(name="<root>", collective="reduce_scatter", phase="backward"))
    bucket = int(hybrid.ranks[1].bucket[hybrid.ranks[1].unit == scatter][0])
    detail = bucket_detail(hybrid, 1, row_of(hybrid, 1, 2, bucket))
    assert detail["bytes"][0] == ["gradients", "4 MB"]


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        (Unit(name="a", collective="all_gather", phase="backward", turn=1),
         "all-gather, backward pass, call 2 of the step"),
        (Unit(name="a", collective="reduce_scatter", phase="backward"),
         "reduce-scatter"),
        (Unit(name="a", collective="all_reduce", phase="backward"),
         "all-reduce"),
    ],
)  # fmt: skip
def test_kinds_in_words(unit: Unit, words: str) -> None:
    """What is moved, and where in the step."""
    assert kind_words(unit) == words


def test_an_error_says_what_it_is_against(tmp_path: Path) -> None:
    """Of parameters that are gathered there is no average."""
    job = ShardedJob(ranks=1, steps=1, units=("<root>",))
    error = ErrorRecord(
        relative_l2=0.1, cosine=1.0, max_absolute=0.1, flipped_share=0.0, reference_l2=1.0
    )
    step, calls = next(sharded_steps(job))[0]
    probed = step, tuple(replace(call, error=error) for call in calls)
    write_ranks(tmp_path, {0: text_of(job.run(0), [probed])})
    scene = tab_of(run_in(tmp_path))
    told = [dict(bucket_detail(scene, 0, row)["error"])["against"] for row in range(2)]
    assert told == ["the parameters", "a lossless reduce-scatter"]


def test_search_finds_units_and_their_parameters(hybrid: Scene) -> None:
    """Each once, whatever is done with it; a number is no bucket."""
    found = search(hybrid, "blocks.1")["results"]
    assert [(one["kind"], one["title"], one["unit"]) for one in found] == [
        ("unit", "blocks.1", "blocks.1"),
        ("parameter", "blocks.1.weight", "blocks.1"),
    ]
    assert found[0]["note"] == "unit of 1 parameter"
    assert [one["kind"] for one in search(hybrid, "2")["results"]] == ["step", "rank"]


def test_a_selection_counts_collectives_by_unit_and_their_exposed_time(hybrid: Scene) -> None:
    """On gloo all time of each is exposed, so shares add up to 1."""
    found = selection(hybrid, 0, hybrid.extent)
    rows = {row["name"]: row for row in found["buckets"]}
    assert set(rows) == {str(unit) for unit in hybrid.units}
    assert sum(row["exposed"] for row in rows.values()) == pytest.approx(1)
    assert found["exposed"] == sum(int(r.exposed.sum()) for r in hybrid.ranks)
    assert rows["blocks.0 all-gather (forward)"]["count"] == HYBRID.ranks * HYBRID.steps


def test_a_sharded_run_speaks_of_no_buckets(hybrid: Scene) -> None:
    """In what people read of it; the keys of the answers are the routes' own."""
    said = summary_of(hybrid)
    texts = [row["text"] for row in said["rebuilds"]]
    assert texts == ["15 different collectives of 4 units have been met since the run began"]
    assert said["late"][0]["rank"] == 3
    assert said["late"][0]["name"] == "<root> all-gather (forward)"
    marks = picture(hybrid, -10 * MS, hybrid.extent, 900)["ranks"][0]["marks"]
    assert [mark["text"] for mark in marks] == texts
    detail = bucket_detail(hybrid, 0, 3)
    assert "bucket" not in json.dumps([detail[k] for k in detail]).replace('"bucket"', "")


def test_the_last_one_is_of_the_ranks_in_the_collective(hybrid: Scene) -> None:
    """Rank 3 is late in its own replica; in the other one nobody waits for it."""
    lasts = []
    for rank in (0, 2):
        late = dict(bucket_detail(hybrid, rank, row_of(hybrid, rank, 5, 0))["late"])
        lasts.append(late.get("last of all", "").partition(",")[0])
    assert lasts == ["", "rank 3"]
