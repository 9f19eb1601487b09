"""Comparisons from sums beside those that have all ranks side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import asdict

from hooktrace.analysis.compare import Comparison, Difference, Measures, compare_runs, measure
from hooktrace.analysis.compare.from_sums import measures_of
from hooktrace.analysis.compare.sums import RunSums, of_track, sum_up
from hooktrace.analysis.summaries import Job
from hooktrace.analysis.timeline import load, read_track, timeline_of
from hooktrace.records import HangRecord
from hooktrace.records.files import find_records, record_path
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.report.sharded_jobs import ShardedJob, write_sharded

pytestmark = pytest.mark.slow
BASE = SyntheticJob(
    ranks=4, steps=90, late_ms={2: 6.0}, late_every=3, slow_every=31, bytes_per_second=2.5e8
)  # fmt: skip
SLOWER = replace(BASE, forward_ms=80.0, seed=1)
FP16 = replace(
    BASE, hook="fp16_compress_hook", wire_share=0.5, codec_ms=0.4, error=1e-3, error_every=9,
    late_ms={1: 9.0}, seed=2,
)  # fmt: skip


def summed(job: SyntheticJob, folder: Path, name: str, every: int = 1) -> Measures:
    """Return what is compared of files that are there, rank by rank, the last one first."""
    shared = Job(job.run(0), job.run(0), every)
    sums = RunSums()
    for _, paths in sorted(find_records(folder).items(), reverse=True):
        sums = sums.merged(sum_up([paths], shared))
    found = measures_of(sums, shared, job.model, name)
    assert found is not None
    return found


def both(job: SyntheticJob, folder: Path, name: str) -> tuple[Measures, Measures]:
    """Return what is compared of a job: all ranks side by side, and from sums."""
    write_job(job, folder)
    full = measure(load(find_records(folder)), job.model, name)
    assert full is not None
    return full, summed(job, folder, name)


@pytest.fixture(scope="module")
def comparisons(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Comparison, Comparison]]:
    """Of each pair of jobs the comparison of all ranks side by side, and that from sums."""
    folder = tmp_path_factory.mktemp("runs")
    base, slower, fp16 = (
        both(job, folder / name, name)
        for job, name in ((BASE, "base"), (SLOWER, "slower"), (FP16, "fp16"))
    )
    return [
        (compare_runs([base[0]], [other[0]]), compare_runs([base[1]], [other[1]]))
        for other in (slower, fp16)
    ]


def test_each_series_is_the_same(tmp_path: Path) -> None:
    """Also where a rank has stopped early, and one that others waited for is late."""
    write_job(FP16, tmp_path / "long")
    write_job(replace(FP16, steps=50), tmp_path / "short")
    record_path(tmp_path / "short", 3).replace(record_path(tmp_path / "long", 3))
    full = measure(load(find_records(tmp_path / "long")), FP16.model, "a")
    mine = summed(FP16, tmp_path / "long", "a")
    assert full is not None
    assert set(full.series) - set(mine.series) == {"wait", "transfer"}
    for name, one in mine.series.items():
        np.testing.assert_array_equal(one.steps, full.series[name].steps, err_msg=name)
        np.testing.assert_allclose(one.values, full.series[name].values, rtol=1e-12, err_msg=name)
    for name in ("period", "exposed", "compress", "calls", "known"):
        np.testing.assert_array_equal(getattr(mine.parts, name), getattr(full.parts, name), name)
    added = [one.parts.exposed_in.sum(axis=0) for one in (mine, full)]
    np.testing.assert_allclose(added[0], added[1], rtol=1e-12, atol=1e-3)


def test_the_facts_are_the_same(tmp_path: Path) -> None:
    """But for what nobody knows from sums; also with a rank's file missing, and another's clock."""
    job = replace(FP16, clocks=False)
    write_job(job, tmp_path)
    record_path(tmp_path, 1).unlink()
    full = measure(load(find_records(tmp_path)), job.model, "a")
    mine = summed(job, tmp_path, "a").facts
    assert full is not None
    unlike = {x for x in mine.__struct_fields__ if getattr(mine, x) != getattr(full.facts, x)}
    assert unlike == {"waits_unknown", "from_summaries"}
    assert (mine.ranks, mine.unaligned, mine.probed) == ((0, 2, 3), (2, 3), 10)


def near(found: Difference | None) -> dict[str, object]:
    """Return a difference, rounded: parts are added up in another order."""
    assert found is not None
    return {
        name: round(x, 9 if "share" in name else 2) + 0.0 if isinstance(x, float) else x
        for name, x in asdict(found).items()
    }


def test_every_number_that_both_have_is_the_same(
    comparisons: list[tuple[Comparison, Comparison]],
) -> None:
    """With intervals and verdicts, of quantities, parts and buckets."""
    for full, mine in comparisons:
        shared = {x.key: (x, full.quantity(x.key)) for x in mine.quantities}
        assert shared.keys() >= {"period_mean", "exposed", "compress", "decompress", "busy", "wire"}
        assert all(one.difference == other for one, other in shared.values() if other is not None)
        assert [key for key, (_, other) in shared.items() if other is None] == ["wire"]
        (compute,) = [x.difference for x in full.parts if x.key == "compute"]
        assert near(mine.parts[-1].difference) == near(compute)
        assert [near(x.exposed) for x in mine.buckets] == [near(x.exposed) for x in full.buckets]
        assert near(mine.step) == near(full.step)
        assert [x.key for x in mine.parts] == ["exposed", "all_calls", "compute"]
        assert {x.stage for x in mine.buckets} == {None}
        exposed = mine.parts[0].difference.difference
        seen = [x.difference.difference or 0.0 for x in full.parts]
        assert exposed == pytest.approx(
            sum(seen) - sum(x.difference.difference or 0.0 for x in mine.parts[1:]), abs=1e3
        )


def test_the_sentence_is_the_same_where_it_rests_on_nothing_else(
    comparisons: list[tuple[Comparison, Comparison]],
) -> None:
    """Of a longer forward; that of another hook says no stage, but what is exposed."""
    (slower, mine), (fp16, mine_of_fp16) = comparisons
    assert mine.sentence == slower.sentence
    assert "ms of what is outside of communication" in mine.sentence
    head, _, parts = mine_of_fp16.sentence.partition(": ")
    assert fp16.sentence.startswith(head)
    assert "ms of exposed communication" in parts
    assert "wire" not in parts


def test_it_says_what_it_does_not_know(comparisons: list[tuple[Comparison, Comparison]]) -> None:
    """Once, among the doubts."""
    for full, mine in comparisons:
        (said,) = [text for text in mine.doubts if "made from summaries" in text]
        assert "who is late: unknown, because it is made from summaries, one rank" in said
        assert set(full.doubts) == set(mine.doubts) - {said}
        assert mine.limits == full.limits


def test_what_an_opaque_hook_sends_is_unknown_and_not_nothing(tmp_path: Path) -> None:
    """Where no step that counts tells."""
    _, mine = both(BASE, tmp_path, "a")
    silent = Measures(
        mine.facts, {k: v for k, v in mine.series.items() if k != "wire_bytes"}, mine.parts
    )
    found = compare_runs([mine], [silent]).quantity("wire_bytes")
    assert found is not None
    assert (found.verdict, found.b, found.why) == ("unknown", None, "it is made from summaries")


def test_long_runs_are_looked_at_now_and_then(tmp_path: Path) -> None:
    """It says at how many steps."""
    write_job(BASE, tmp_path)
    one = summed(BASE, tmp_path, "a", every=2)
    assert (one.facts.steps, len(one.parts.period)) == (90, 44)
    found = compare_runs([one], [one])
    assert "a: it is long, so one of 2 steps was looked at" in found.doubts


def test_steps_that_hung_on_any_rank_do_not_count(tmp_path: Path) -> None:
    """One that a single rank has recorded."""
    write_job(BASE, tmp_path)
    tracks = [read_track(paths) for paths in find_records(tmp_path).values()]
    tracks[1].records.hangs.append(
        HangRecord(
            kind="busy", hang=1, model=BASE.model, hook=BASE.hook, step=40, bucket=0, ranks=(),
            waiting=(1,), since_ns=0, since_wall_ns=0, message="", rank=1,
        )
    )  # fmt: skip
    shared, sums = Job(BASE.run(0), BASE.run(0)), RunSums()
    for track in tracks:
        sums = sums.merged(of_track(track, shared))
    mine = measures_of(sums, shared, BASE.model, "a")
    full = measure(timeline_of(tracks), BASE.model, "a")
    assert mine is not None
    assert full is not None
    assert 40 not in mine.series["period"].steps
    assert mine.facts.steps == full.facts.steps == 89
    np.testing.assert_array_equal(mine.series["period"].values, full.series["period"].values)
    np.testing.assert_array_equal(mine.parts.period, full.parts.period)


def test_nothing_settled_is_none() -> None:
    """Of another model."""
    assert measures_of(RunSums(), Job(None, None), "another", "a") is None


def test_units_are_summed_as_buckets_are(tmp_path: Path) -> None:
    """With what each is, and what is exposed of it."""
    job = ShardedJob(steps=90, late_ms={1: 4.0})
    write_sharded(job, tmp_path)
    full = measure(load(find_records(tmp_path)), "net", "net")
    shared = Job(job.base.run(0), job.base.run(0), 1)
    sums = RunSums()
    for _, paths in sorted(find_records(tmp_path).items()):
        sums = sums.merged(sum_up([paths], shared))
    summed_up = measures_of(sums, shared, "net", "net")
    assert full is not None
    assert summed_up is not None
    assert summed_up.facts.is_sharded
    assert summed_up.facts.buckets == full.facts.buckets
    assert all(one.unit is not None for one in summed_up.facts.buckets)
    np.testing.assert_allclose(summed_up.parts.exposed, full.parts.exposed)
