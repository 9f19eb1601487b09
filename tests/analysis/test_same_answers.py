"""Report, comparison, tab, frames and Perfetto file answer the same questions alike.

Which steps count, why the others do not, and who is late: of made-up jobs.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client

from hooktrace.analysis.compare.measure import Measures, measure
from hooktrace.analysis.frames import load as load_frames
from hooktrace.analysis.perfetto import export
from hooktrace.analysis.report import build_report
from hooktrace.analysis.report.run_report import ModelReport
from hooktrace.analysis.run import REASONS
from hooktrace.analysis.tensorboard_plugin.plugin import CommTimeline
from hooktrace.analysis.tensorboard_plugin.scene import LATE
from hooktrace.records import CompletedStep
from hooktrace.testing.rank_file import rank_file
from hooktrace.testing.synthetic import SyntheticJob, simulate, write_job
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from tests.analysis.perfetto.trace_events import read, validate
from tests.analysis.report.jobs import Change, write_changed
from tests.analysis.report.sharded_jobs import ShardedJob, write_sharded
from tests.analysis.report.test_silence import nobody_waits
from tests.analysis.run.files import write_ranks
from tests.analysis.runs import run_in

JOB = SyntheticJob(ranks=3, steps=24)
LATE_JOB = dataclasses.replace(JOB, late_ms={2: 6.0})
Counts = dict[tuple[int, int], str]
"""By rank and step the reason why it does not count, or that it does."""


def job(**changes: Any) -> Callable[[Path], object]:
    """Return what writes the job with some fields changed."""
    return lambda folder: write_job(dataclasses.replace(JOB, **changes), folder)


def changed(change: Change, base: SyntheticJob = LATE_JOB) -> Callable[[Path], object]:
    """Return what writes a job each of whose steps is changed."""
    return lambda folder: write_changed(folder, base, change)


def hung(folder: Path) -> None:
    """Rank 2 keeps the others waiting for 42 s in step 251."""
    base = dataclasses.replace(JOB, steps=256, bucket_bytes=(1_000_000,) * 2)
    write_hung_job(base, SyntheticHang(step=251, bucket=1, went_on_after_s=42), folder)


def rebuilt(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step, which has other buckets from the tenth on; every fourth is probed."""
    step, buckets = completed
    generation = 1 if step.step < 10 else 2
    changed = replace(step, generation=generation, probed=step.step % 4 == 0)
    return changed, tuple(replace(b, generation=generation) for b in buckets)


def incomplete(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step; rank 1 lost a bucket of two of them, in one it is lost on all ranks."""
    step, buckets = completed
    if step.step == 20 or (step.step in (5, 9) and rank == 1):
        return replace(step, complete=False, bucket_count=7), buckets[:-1]
    return completed


def joined(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step; rank 0 has no data from the sixteenth on."""
    step, buckets = completed
    shadow = rank == 0 and step.step > 15
    return replace(step, shadow=shadow), tuple(replace(b, shadow=shadow) for b in buckets)


def warming_up(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step; the first two warm up, and there is a pause of 5 s before the twelfth."""
    step, buckets = completed
    warmup = step.step < 3
    if step.step == 12:
        step = replace(step, previous_period_ns=5_000_000_000)
    return replace(step, warmup=warmup), tuple(replace(b, warmup=warmup) for b in buckets)


def two_models(folder: Path) -> None:
    """As a GAN's: rank 2 is late in the backward pass of one."""
    of_both = [dataclasses.replace(JOB, model="a", start_ns=60_000_000, late_ms={2: 6.0}),
               dataclasses.replace(JOB, model="b", late_ms={0: 0.0})]  # fmt: skip
    for rank in range(JOB.ranks):
        steps = [now.completed(rank) for one in of_both for now in simulate(one)]
        records = [JOB.run(rank), *(one.layout() for one in of_both), *JOB.clock_records(rank)]
        write_ranks(folder, {rank: rank_file(records, steps).decode()})


JOBS: dict[str, Callable[[Path], object]] = {
    "a hang in step 251": hung,
    "late by 1.9 ms of 106": job(late_ms={2: 1.9}),
    "late by 2.6 ms from bucket 3 on": job(late_ms={2: 2.6}, late_from=3),
    "late by less than is worth a name": job(late_ms={2: 0.4}),
    "late and probed": job(late_ms={1: 6.0}, error=0.1, error_every=5, skews=True),
    "late, clocks unknown": job(late_ms={1: 6.0}, clocks=False),
    "late, and nobody waits": changed(nobody_waits),
    "buckets rebuilt": changed(rebuilt),
    "incomplete steps": changed(incomplete),
    "join": changed(joined),
    "warm-up and a pause": changed(warming_up, JOB),
    "two models": two_models,
    "sharded": lambda folder: write_sharded(ShardedJob(steps=24, late_ms={1: 3.0}), folder),
}
LATE_IN = {
    "late by 1.9 ms of 106", "late by 2.6 ms from bucket 3 on", "late and probed",
    "buckets rebuilt", "incomplete steps", "join", "two models", "sharded",
}  # fmt: skip


class Answers:
    """What each of the five says of a job that was written to a folder."""

    def __init__(self, job: str, folder: Path) -> None:
        self.job, self.run = job, run_in(folder)
        self.report = build_report(self.run)
        frames = load_frames(folder)
        self.steps, self.buckets = frames.steps.pandas(), frames.buckets.pandas()
        self._plugin = CommTimeline(TBContext(logdir=str(folder)))
        export(self.run, folder / "trace.json")
        self._events = validate(read(folder / "trace.json"))

    @property
    def models(self) -> list[ModelReport]:
        """The report's models."""
        return self.report.models

    def tab(self, route: str, **parameters: Any) -> Any:
        """Return what the tab answers."""
        (run,) = self._ask("/runs")["runs"]
        return self._ask(route, run=run, **parameters)

    def _ask(self, route: str, **parameters: Any) -> Any:
        response = Client(self._plugin.get_plugin_apps()[route]).get(route, query_string=parameters)
        assert response.status_code == 200, response.get_data()
        return json.loads(response.get_data())

    def compared(self, model: str) -> Measures:
        """Return what is compared of a model."""
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

    def arrows(self, model: str) -> Iterator[tuple[int, str, int]]:
        """Yield step, call and rank where the arrows end that tie a call's ranks together."""
        begins = {(e["pid"], e["tid"], e["ts"]): e for e in self._slices}
        for e in self._events:
            if e["ph"] == "f" and self._rows[e["pid"], e["tid"]].startswith(f"{model}: "):
                call, title = begins[e["pid"], e["tid"], e["ts"]], self._rows[e["pid"], e["tid"]]
                name = call["name"]
                kind = "" if call["cat"] == "bucket" else title.removeprefix(f"{model}:")
                yield call["args"]["step"], name + kind, e["pid"]

    @cached_property
    def _slices(self) -> list[dict[str, Any]]:
        slices = (e for e in self._events if e["ph"] == "X")
        return [e for e in slices if e["cat"] in ("step", "bucket", "unit")]

    @cached_property
    def _rows(self) -> dict[tuple[int, int], str]:
        return {
            (e["pid"], e["tid"]): e["args"]["name"]
            for e in self._events
            if e["name"] == "thread_name"
        }


@pytest.fixture(scope="module", params=JOBS)
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What the five say of each job."""
    folder = tmp_path_factory.mktemp("job")
    JOBS[request.param](folder)
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
        trace, source = answers.in_trace(model.facts.model), model.source
        first: dict[int, str] = {}
        for (_, step), reason in trace.items():
            first[step] = min(first.get(step, reason), reason, key=REASONS.index)
        counted = sorted(step for step, reason in first.items() if reason == "counts")
        said = {r: sum(x == r for x in first.values()) for r in REASONS[1:]}
        assert source.left_out == {reason: count for reason, count in said.items() if count}
        assert (source.seen, source.counted, model.facts.steps) == (
            len(first), len(counted), len(counted),
        )  # fmt: skip
        of_ranks = {r.rank: r.steps for r in model.facts.ranks}
        assert of_ranks == {
            rank: sum(of == rank and why == "counts" for (of, _), why in trace.items())
            for rank in of_ranks
        }
        compared = answers.compared(model.facts.model)
        assert compared.series["exposed"].steps.tolist() == counted
        assert (compared.facts.steps, compared.facts.probed) == (len(counted), model.facts.probed)


def test_the_tab_counts_them_too(answers: Answers) -> None:
    """Its lists, the bands above the lanes, the heat map's colours, and the critical paths."""
    for model in answers.models:
        name, trace = model.facts.model, answers.in_trace(model.facts.model)
        summary = answers.tab("/summary", model=name)
        counted = {step for (_, step), reason in trace.items() if reason == "counts"}
        listed = {one["step"] for one in (*summary["slowest"], *summary["exposed"])}
        assert listed <= counted
        assert len(listed) >= min(len(counted), 30)
        everywhere = on_all_ranks(trace)
        bands = summary["bands"]["exposed"]
        assert bands["first"] == bands["last"] == everywhere
        rows = answers.frame(name)
        exposed = rows[rows["step"].isin(everywhere)]["exposed_ns"]
        heat = answers.tab("/heat", model=name, value="exposed", columns=1000)
        assert (heat["low"], heat["high"]) == (exposed.min(), exposed.max())
        usual = {
            rank: own["exposed_ns"].median() for rank, own in rows[rows["counts"]].groupby("rank")
        }
        assert dict(summary["usual_exposed"]) == pytest.approx(usual, abs=1)
        assert answers.tab("/path_sums", model=name)["of"] == len(everywhere)


def test_all_name_the_same_late_ranks(answers: Answers) -> None:
    """At the same bucket, in as many steps; where nobody is named, the tab says why."""
    named = False
    for model in answers.models:
        name, late = model.facts.model, model.facts.late
        named |= bool(late)
        assert answers.compared(name).facts.late == late
        summary = answers.tab("/summary", model=name)
        of_tab = [(x["rank"], x["bucket"], x["times"] / x["of"]) for x in summary["late"]]
        assert of_tab == [(x.rank, x.bucket, x.share) for x in late]
        assert bool(summary["late_note"]) == (not late)
        extent = next(one["extent"] for one in answers.tab("/run")["models"] if one["name"] == name)
        view = answers.tab("/view", model=name, t0=0, t1=extent, width=4000)
        marked = {
            one["rank"]
            for one in view["ranks"]
            if any(f & LATE for f in one["bars"]["flags"]) or any(one["bins"]["late"])
        }
        assert marked == {x.rank for x in late}
    assert named == (answers.job in LATE_IN)


def test_times_and_arrows_show_who_is_late(answers: Answers) -> None:
    """Of the steps that count, the rank was last in the share of them that is said."""
    for model in answers.models:
        everywhere = on_all_ranks(answers.in_trace(model.facts.model))
        ends = {(step, call): rank for step, call, rank in answers.arrows(model.facts.model)}
        summary = answers.tab("/summary", model=model.facts.model)
        for late, of_tab in zip(model.facts.late, summary["late"], strict=True):
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
                    assert ends[step, of_tab["name"]] == late.rank
            assert (times, len(everywhere)) == (of_tab["times"], of_tab["of"])
