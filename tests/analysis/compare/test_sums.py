"""What ranks leave one by one: in any order and grouping the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hooktrace.analysis.compare.sums import RunSums, sum_up
from hooktrace.analysis.summaries import Job
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob, write_job

JOB = SyntheticJob(ranks=5, steps=20, late_ms={2: 9.0}, error=0.02, error_every=5)
SHARED = Job(JOB.run(0), JOB.run(0))


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[RunSums]:
    """The sums of each rank, of which the last one has fewer steps."""
    folder = tmp_path_factory.mktemp("runs")
    write_job(JOB, folder / "long")
    write_job(replace(JOB, steps=12), folder / "short")
    long, short = (list(find_records(folder / name).values()) for name in ("long", "short"))
    return [sum_up([paths], SHARED) for paths in (*long[:4], short[4])]


def plain(sums: RunSums) -> object:
    """Return all that is in sums, as lists; of errors, which are no whole numbers, nine digits."""
    (model,) = sums.models.values()
    tables = [
        (table.keys.tolist(), {k: [f"{x:.9g}" for x in v] for k, v in table.columns.items()})
        for table in (model.by_step, model.by_bucket, model.errors)
    ]
    rest = [model.setup, model.generation, model.gradient_bytes, model.sizes, model.parameters]
    rest += [model.sent, model.steps.tolist(), model.probed.tolist()]
    return tables, rest, sums.ranks, sums.names, sums.hosts, sums.open, sums.unaligned, sums.hung


@settings(max_examples=25, deadline=None)
@given(order=st.permutations(range(5)), data=st.data())
def test_in_any_order_and_grouping(
    parts: list[RunSums], order: list[int], data: st.DataObject
) -> None:
    """Neighbours are put together, whichever, until one is left; an empty one changes nothing."""
    waiting = [RunSums(), *(parts[i] for i in order)]
    while len(waiting) > 1:
        at = data.draw(st.integers(0, len(waiting) - 2))
        waiting[at : at + 2] = [waiting[at].merged(waiting[at + 1])]
    whole = RunSums()
    for part in parts:
        whole = whole.merged(part)
    assert plain(waiting[0]) == plain(whole)


def test_sums_and_counts_of_each_step(parts: list[RunSums]) -> None:
    """Of steps that a rank does not have there are fewer."""
    model = parts[3].merged(parts[4]).models["synthetic"]
    counts = dict(
        zip(model.by_step.keys.tolist(), model.by_step.columns["period count"], strict=True)
    )
    assert (counts[3], counts[17]) == (2, 1)
    each = [one.models["synthetic"].by_step.columns["period"][2] for one in parts[3:]]
    assert model.by_step.columns["period"][2] == sum(each)


def test_of_an_older_bucket_layout_nothing_is_left(parts: list[RunSums]) -> None:
    one = parts[0].models["synthetic"]
    two = replace(parts[1].models["synthetic"], generation=2)
    assert one.merged(two) is two
    assert two.merged(one) is two


def test_another_runs_file_is_left_out(tmp_path: Path) -> None:
    write_job(replace(JOB, ranks=1, steps=3), tmp_path)
    other = Job(msgspec.structs.replace(JOB.run(0), run_id="another"), None)
    found = sum_up(list(find_records(tmp_path).values()), other)
    assert (found.ranks, found.other_runs, found.models) == (set(), {0}, {})


def test_tables_keep_every_nth_step_of_a_long_run(tmp_path: Path) -> None:
    """The same ones on all ranks; how many there are is known all the same."""
    write_job(replace(JOB, error=None), tmp_path)
    found = sum_up(list(find_records(tmp_path).values()), SHARED._replace(every=4))
    model = found.models["synthetic"]
    assert model.by_step.keys.tolist() == [4, 8, 12, 16, 20]
    assert len(model.by_bucket.keys) == 5 * 8
    assert len(model.steps) == 20
