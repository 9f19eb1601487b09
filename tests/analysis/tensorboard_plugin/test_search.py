"""What a text finds: every kind of thing, and no more than can be listed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hooktrace.analysis.run.scene import Scene
from hooktrace.analysis.tensorboard_plugin.search import MAX_RESULTS, search
from hooktrace.records.codec import RecordEncoder
from hooktrace.testing.synthetic import SyntheticJob
from tests.analysis.run.files import run_of, steps_of, text_of, write_ranks
from tests.analysis.runs import job_run, run_in, tab_of
from tests.exporters.records_sample import make_layout


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Four ranks, eight buckets, one anomaly of rank 1 in step 3."""
    folder = tmp_path_factory.mktemp("search")
    job = SyntheticJob(steps=6, anomaly_rank=1)
    return tab_of(job_run(job, folder))


def titles(scene: Scene, text: str) -> list[tuple[str, str]]:
    return [(one["kind"], one["title"]) for one in search(scene, text)["results"]]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("3", [("step", "step 3"), ("bucket", "bucket 3"), ("rank", "rank 3")]),
        ("6", [("step", "step 6"), ("bucket", "bucket 6")]),
        ("Bucket 7", [("bucket", "bucket 7")]),
        ("b7", [("bucket", "bucket 7")]),
        ("rank  2", [("rank", "rank 2")]),
        ("r2", [("rank", "rank 2")]),
        ("layers.5", [("parameter", "layers.5.weight")]),
        ("LAYERS.5.W", [("parameter", "layers.5.weight")]),
        ("nonfinite gradient", [("anomaly", "nonfinite gradient, step 3, rank 1")]),
        ("nonfinite_gradient", [("anomaly", "nonfinite gradient, step 3, rank 1")]),
        ("bucket 8", []),
        ("step 99", []),
        ("99999999999999999999", []),
        ("", []),
        ("  ", []),
        ("w", []),
        ("%", []),
    ],
)
def test_each_kind_is_found(made: Scene, text: str, found: list[tuple[str, str]]) -> None:
    """A number alone is all that it may be; one letter would find everything."""
    assert titles(made, text) == found


def test_results_say_where_they_lead(made: Scene) -> None:
    (parameter,) = search(made, "layers.5")["results"]
    assert {k: parameter[k] for k in ("bucket", "first", "last")} == {
        "bucket": 5, "first": 1, "last": None,
    }  # fmt: skip
    assert parameter["note"] == "bucket 5 from step 1 on; 1000000"
    (anomaly,) = search(made, "nonfinite")["results"]
    assert (anomaly["step"], anomaly["rank"]) == (3, 1)
    assert 0 < anomaly["at"] < made.extent


def test_a_parameter_is_in_the_buckets_of_each_layout(tmp_path: Path) -> None:
    """DDP rebuilds them; the newest comes first, and each says until when."""
    layout = make_layout()
    name = layout.buckets[0].parameters[0].name
    encoder = RecordEncoder()
    first = replace(layout, model="net", rebuild=1, step=0)
    moved = tuple(replace(b, bucket=1 - b.bucket) for b in layout.buckets[:2])
    second = replace(layout, model="net", rebuild=2, step=2, buckets=moved)
    text = text_of(run_of(0), steps_of(4), ended=False)
    lines = [text, *(encoder.record(one).decode() for one in (first, second))]
    write_ranks(tmp_path, {0: "".join(lines)})
    results = search(tab_of(run_in(tmp_path)), name)["results"]
    found = [(one["bucket"], one["first"], one["last"]) for one in results if one["title"] == name]
    assert found == [(1, 2, None), (0, 0, 1)]


def test_the_list_is_bounded(tmp_path: Path) -> None:
    """Of a hundred parameters the first are listed; a model that is not there has none."""
    job = SyntheticJob(ranks=1, steps=1, bucket_bytes=(4000,) * 100)
    answer: dict[str, Any] = search(tab_of(job_run(job, tmp_path)), "weight")
    assert (len(answer["results"]), answer["more"]) == (MAX_RESULTS, True)
    assert search(Scene(run_in(tmp_path), "none"), "we") == {
        "results": [], "more": False,
    }  # fmt: skip
