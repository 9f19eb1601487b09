"""Report, comparison, tab, frames and Perfetto file answer the same questions alike.

Which steps count, why the others do not, and who is late: of made-up jobs.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hooktrace.analysis.compare.measure import Measures, measure
from hooktrace.analysis.frames import load as load_frames
from hooktrace.analysis.hang import hang_json
from hooktrace.analysis.perfetto import export
from hooktrace.analysis.report import build_report
from hooktrace.analysis.report.findings import HUNG
from hooktrace.analysis.run import REASONS, hangs
from hooktrace.analysis.run.scene import KINDS, LATE, Scene
from hooktrace.exporters.observations import Observer
from hooktrace.records import Batch
from hooktrace.records import metrics as m
from hooktrace.records.files import find_records
from hooktrace.records.reader import read_parts
from tests.analysis.golden import REAL, write
from tests.analysis.jobs import JOBS
from tests.analysis.perfetto.trace_events import read, validate
from tests.analysis.runs import asking, run_in

Counts = dict[tuple[int, int], str]
"""By rank and step the reason why it does not count, or that it does."""


LATE_IN = {
    "late", "late by 1.9 ms of 106", "late by 2.6 ms from bucket 3 on", "late and checked",
    "buckets rebuilt", "incomplete steps", "join", "two models", "on devices", "real-late",
}  # fmt: skip


class Answers:
    """What each of the five says of a job that was written to a folder."""

    def __init__(self, job: str, folder: Path) -> None:
        self.job, self.folder, self.run = job, folder, run_in(folder)
        self.models = build_report(self.run).models
        frames = load_frames(folder)
        self.steps, self.buckets = frames.steps.pandas(), frames.buckets.pandas()
        self.waits = frames.waits.pandas()
        self._ask = asking(folder)
        export(self.run, folder / "trace.json")
        self.events = validate(read(folder / "trace.json"))

    def tab(self, route: str, **parameters: Any) -> Any:
        found = self._ask(route, **parameters)
        assert "error" not in found, found
        return found

    def compared(self, model: str) -> Measures:
        found = measure(self.run, model, "run")
        assert found is not None
        return found

    def frame(self, model: str) -> Any:
        """Return the rows of ``run.steps`` of a model."""
        return self.steps[self.steps["model"] == model]

    def in_trace(self, model: str) -> Counts:
        """Return which steps count by the Perfetto file."""
        return {
            (e["pid"], int(e["name"].removeprefix("step "))): e["args"].get("left_out", "counts")
            for e in self._slices
            if e["cat"] == "step" and self._rows[e["pid"], e["tid"]].startswith(f"{model}: ")
        }

    @cached_property
    def _slices(self) -> list[dict[str, Any]]:
        slices = (e for e in self.events if e["ph"] == "X")
        return [e for e in slices if e["cat"] in ("step", "bucket", "unit")]

    @cached_property
    def _rows(self) -> dict[tuple[int, int], str]:
        return {
            (e["pid"], e["tid"]): e["args"]["name"]
            for e in self.events
            if e["name"] == "thread_name"
        }


@pytest.fixture(scope="module", params=[*JOBS, *REAL])
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What the five say of each job."""
    folder = tmp_path_factory.mktemp("job")
    write(request.param, folder)
    return Answers(request.param, folder)


def on_all_ranks(counts: Counts) -> list[int]:
    """Return the steps that count on all ranks that have them."""
    by_step = defaultdict(set)
    for (_, step), reason in counts.items():
        by_step[step].add(reason)
    return sorted(step for step, reasons in by_step.items() if reasons == {"counts"})


def test_frames_and_trace_count_the_same_steps(answers: Answers) -> None:
    """Rank by rank; the Perfetto file has the reason too."""
    for model in answers.models:
        rows, trace = answers.frame(model.facts.model), answers.in_trace(model.facts.model)
        keys = zip(rows["rank"], rows["step"], strict=True)
        of_frame = dict(zip(keys, rows["counts"], strict=True))
        assert of_frame == {key: reason == "counts" for key, reason in trace.items()}


def test_report_and_comparison_count_them_too(answers: Answers) -> None:
    """A step that counts on any rank is counted; of the others the first reason is said."""
    for model in answers.models:
        trace, source = answers.in_trace(model.facts.model), model.facts
        first: dict[int, str] = {}
        for (_, step), reason in trace.items():
            first[step] = min(first.get(step, reason), reason, key=REASONS.index)
        counted = sorted(step for step, reason in first.items() if reason == "counts")
        said = {r: sum(x == r for x in first.values()) for r in REASONS[1:]}
        assert source.left_out == {reason: count for reason, count in said.items() if count}
        assert (source.seen, source.steps) == (len(first), len(counted))
        of_ranks = {r.rank: r.steps for r in model.facts.ranks}
        assert of_ranks == {
            rank: sum(of == rank and why == "counts" for (of, _), why in trace.items())
            for rank in of_ranks
        }
        compared = answers.compared(model.facts.model)
        assert compared.facts.steps == len(counted)
        assert compared.facts.left_out == model.facts.left_out


def test_the_tab_counts_them_too(answers: Answers) -> None:
    """Its lists, the bands above the lanes, and the heat map's colours."""
    for model in answers.models:
        name, trace = model.facts.model, answers.in_trace(model.facts.model)
        summary = answers.tab("/summary", model=name)
        counted = {step for (_, step), reason in trace.items() if reason == "counts"}
        lists = summary["lists"]
        listed = {one["step"] for one in (*lists["slowest"], *lists["exposed"])}
        assert listed <= counted
        assert len(listed) >= min(len(counted), 12)
        everywhere = on_all_ranks(trace)
        rows = answers.frame(name)
        bands = summary["bands"]["exposed"]
        assert bands["first"] == bands["last"] == everywhere
        exposed = rows[rows["step"].isin(everywhere)]["exposed_ns"]
        heat = answers.tab("/heat", model=name, value="exposed", columns=1000)
        assert (heat["low"], heat["high"]) == (exposed.min(), exposed.max())


def test_all_name_the_same_late_ranks(answers: Answers) -> None:
    """At the same bucket, in as many steps; where nobody is named, the tab says why."""
    named = False
    for model in answers.models:
        name, late = model.facts.model, model.facts.late
        named |= bool(late)
        assert answers.compared(name).facts.late == late
        of_tab = Scene(answers.run, name).late
        assert [one for one, _ in of_tab] == list(late)
        told = answers.tab("/summary", model=name)["lists"]["late"]
        notes = [False] * len(late) or [True] * (len(answers.run.tracks) > 1)
        assert ["note" in row for row in told] == notes
        extent = next(one["extent"] for one in answers.tab("/run")["models"] if one["name"] == name)
        view = answers.tab("/view", model=name, t0=0, t1=extent, width=4000)
        marked = {
            one["rank"]
            for one in view["ranks"]
            if any(f & LATE for f in one["bars"]["flags"]) or any(one["bins"]["late"])
        }
        assert marked == {x.rank for x in late}
    assert named == (answers.job in LATE_IN)


def test_times_show_who_is_late(answers: Answers) -> None:
    """Of the steps that count, the rank was last in the share of them that is said."""
    for model in answers.models:
        everywhere = on_all_ranks(answers.in_trace(model.facts.model))
        name = model.facts.model
        listed = answers.tab("/summary", model=name)["lists"]["late"]
        for late, row in zip(model.facts.late, listed, strict=False):
            assert row["text"].startswith(f"others wait for it at bucket {late.bucket}, so long ")
            rows = answers.buckets
            rows = rows[(rows["model"] == model.facts.model) & (rows["bucket"] == late.bucket)]
            times = 0
            for step in everywhere:
                own = rows[rows["step"] == step]
                at = own["called_ns"].astype(float).to_numpy()
                unsure = own["clock_uncertainty_ns"].astype(float).to_numpy()
                place = own["rank"].tolist().index(late.rank)
                others = np.delete(at + unsure, place)
                if at[place] - unsure[place] > others.max():
                    times += 1
            assert times / len(everywhere) == pytest.approx(late.share)


def test_waits_are_split_alike(answers: Answers) -> None:
    """Report and frames bucket by bucket, over the steps that count; the tab over all of them."""
    for model in answers.models:
        name, rows = model.facts.model, answers.buckets
        counted = answers.frame(name)
        counted = counted[counted["stands_for_all"]][["rank", "step"]]
        odd = rows["warmup"] | rows["join_dummy"] | rows["checked"] | rows["exception"].notna()
        own = rows[(rows["model"] == name) & ~odd].merge(counted, on=["rank", "step"])
        if not model.facts.is_sharded:
            own = own[own["rebuild"] == own["rebuild"].max()]
        for bucket in model.facts.buckets:
            waits = own[own["bucket"] == bucket.bucket]["wait_ns"].dropna().astype(float)
            transfers = own[own["bucket"] == bucket.bucket]["transfer_ns"].dropna().astype(float)
            assert (bucket.wait_ns is None) == (not len(waits))
            if bucket.wait_ns is not None:
                assert bucket.wait_ns == pytest.approx(waits.mean())
                assert bucket.transfer_ns == pytest.approx(transfers.median())
        of_tab = Scene(answers.run, name).spent[KINDS.index("wait")]
        waits = answers.waits[answers.waits["model"] == name]["wait_ns"].dropna().astype(int)
        assert of_tab.sum() == waits.sum()


def test_hangs_are_told_alike(answers: Answers) -> None:
    """Report, tab, ``hooktrace hang`` and Perfetto file: the same sentence and outcome, once."""
    told = [(one["sentence"], one["outcome"]) for one in json.loads(
        hang_json(answers.run, hangs(answers.run)))["hangs"]]  # fmt: skip
    hung = [one for m in answers.models for one in m.findings if one.rule == HUNG]
    of_report = [(one.sentence, one.evidence[1]) for one in hung]
    assert of_report == [(f"{one[:1].upper()}{one[1:]}.", outcome) for one, outcome in told]
    of_tab = [
        one["text"]
        for model in answers.models
        for one in answers.tab("/summary", model=model.facts.model)["lists"]["anomalies"]
        if one.get("label", "").startswith("hang, ")
    ]
    assert of_tab == [f"{sentence}; {outcome}" for sentence, outcome in told]
    in_trace = {
        (e["args"]["message"], e["args"]["outcome"])
        for e in answers.events
        if e.get("cat") == "hang"
    }
    assert in_trace == set(told)


def test_comparison_has_the_reports_numbers(answers: Answers) -> None:
    """Each step is one number there, the mean of its ranks; bytes are the report's."""
    for model in answers.models:
        measured, facts = answers.compared(model.facts.model), model.facts
        assert measured.facts.split_unknown == facts.split_unknown
        assert measured.facts.gradient_bytes == facts.gradient_bytes
        sent = measured.facts.least_wire_bytes
        assert sent == facts.least_wire_bytes
        rows = answers.frame(facts.model)
        rows = rows[rows["counts"]]
        exposed = rows.groupby("step")["exposed_ns"].mean()
        of_steps = exposed.dropna().sort_index().tolist()
        assert measured.series["exposed"].tolist() == pytest.approx(of_steps)
        for key, of in (("exposed", facts.exposed), ("period", facts.period)):
            if of is not None:
                assert of.p50 == pytest.approx(np.median(measured.series[key]))


def test_metrics_add_up_to_the_same(answers: Answers) -> None:
    """Prometheus' sums over all ranks, where they mean the same as columns of frames."""
    sums: Counter[str] = Counter()
    for paths in find_records(answers.folder).values():
        found, own = read_parts(paths), defaultdict(list)
        for bucket in found.buckets:
            own[bucket.model, bucket.step].append(bucket)
        assert found.run is not None
        steps = tuple((step, tuple(own[step.model, step.step])) for step in found.steps)
        for metric, _, values in Observer("test").observe(Batch(run=found.run, steps=steps)):
            sums[metric.name] += sum(values)
    rows, buckets = answers.steps, answers.buckets
    assert sums[m.STEPS.name] == len(rows)
    whole = ~(rows["warmup"] | rows["join_dummy"] | rows["checked"]) & rows["complete"]
    exposed = rows[whole]["exposed_ns"].dropna().sum() / 1e9
    assert sums[m.EXPOSED.name] == pytest.approx(exposed)
    if not rows["sharded"].any() and buckets["wire_bytes"].notna().all():  # units have their own
        assert sums[m.WIRE_BYTES.name] == buckets["wire_bytes"].sum()
        assert sums[m.GRADIENT_BYTES.name] == buckets["gradient_bytes"].sum()
    assert sums[m.STEP_PERIOD.name] == pytest.approx(rows["period_ns"].dropna().sum() / 1e9)
