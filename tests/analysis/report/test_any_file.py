"""Whatever a run's files lack, the report and the export get through it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hooktrace.analysis.perfetto import export
from hooktrace.analysis.report import build_report
from hooktrace.analysis.report.run_report import report_json
from tests.analysis.perfetto.trace_events import read, validate
from tests.analysis.run.files import Completed, moved, run_of, text_of, write_ranks
from tests.analysis.runs import run_in
from tests.analysis.shown import Page, page_of
from tests.exporters.records_sample import checked, make_step, on_device, plain

CHANGES: tuple[Callable[[Completed], Completed], ...] = (
    lambda step: step,
    lambda step: (step[0], ()),  # the file's limit left the buckets out
    lambda step: (step[0], step[1][:1]),
    on_device,
    lambda step: on_device(step, resolved=False),
    lambda step: plain(step, sent=None),
    checked,
    lambda step: moved(step, lambda _: 10**9),  # all at once
    lambda step: (step[0], tuple(replace(b, done_ns=b.ready_ns - 5) for b in step[1])),
    lambda step: (
        replace(step[0], communication_ns=None, exposed_ns=None, wire_in_flight_ns=None),
        step[1],
    ),
    lambda step: (
        replace(step[0], communication_ns=0, exposed_ns=0, previous_period_ns=0),
        step[1],
    ),
    lambda step: (replace(step[0], complete=False), step[1]),
    lambda step: (replace(step[0], join_dummy=True), step[1]),
    lambda step: (step[0], tuple(replace(b, exception="ValueError: no") for b in step[1])),
    lambda step: (step[0], tuple(replace(b, bucket=b.bucket + 7) for b in step[1])),
    lambda step: (step[0], tuple(replace(b, wire_bytes=0, bus_bytes=0.0) for b in step[1])),
)
STEPS = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from(CHANGES)), max_size=8, unique_by=lambda s: s[0]
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=3))
def test_no_run_is_too_odd(
    tmp_path_factory: pytest.TempPathFactory,
    ranks: list[list[tuple[int, Callable[[Completed], Completed]]]],
) -> None:
    """Steps without buckets, unknown numbers, odd times, on any of the ranks."""
    folder = tmp_path_factory.mktemp("run")
    for rank, steps in enumerate(ranks):
        made = [change(make_step(number)) for number, change in steps]
        write_ranks(folder, {rank: text_of(run_of(rank), made)})
    run = run_in(folder)
    report = build_report(run)
    for model in report.models:
        for finding in model.findings:
            assert "nan" not in finding.sentence.split()
    json.loads(report_json(report), parse_constant=pytest.fail)
    text = page_of(report)
    Page(text)
    assert '"nan' not in text
    export(run, folder / "merged.json")
    validate(read(folder / "merged.json"))
