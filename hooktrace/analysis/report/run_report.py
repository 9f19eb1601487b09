"""All that is said of a run, before it is printed, drawn or written.

Run --settled_steps--> StepArrays --model_facts--> ModelFacts --rules--> findings
   |---> what the files do not say: a report of part of the data says which part
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from ..document.output import json_text
from ..run import Run, other_traffic
from ..run.counts import steps_left_out
from ..run.dense import StepArrays, settled_steps
from ..run.missing import missing
from .facts import Finding, ModelFacts, model_facts
from .findings import findings, recorded

SCHEMA = 5
"""Of the JSON: changes when a field changes its name or meaning; new fields may come without."""


@dataclass(frozen=True, slots=True)
class ModelReport:
    """One model: what is known, what is said of it, what pictures are drawn from."""

    facts: ModelFacts
    findings: list[Finding]
    arrays: StepArrays


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run, whose files are at ``path``, as that was given.

    ``findings``: hangs and anomalies of models of which no step has settled.  ``missing``:
    sentences, the gravest first.
    """

    run: Run
    path: str | None
    models: list[ModelReport]
    findings: list[Finding]
    missing: list[str]

    @property
    def headline(self) -> str:
        """One line about the run."""
        info, ranks = self.run.info, len(self.run.tracks)
        if info is None:
            return f"a run of {ranks} ranks, of which no file has its first line"
        return (
            f"run {info.run_id}: {ranks} of {info.world_size} ranks, {info.backend}, "
            f"torch {info.torch_version}"
        )

    @property
    def begun(self) -> str | None:
        """When its first process began, UTC, ISO 8601."""
        begun = min((info.wall_anchor_ns for info in self.run.infos), default=None)
        if begun is None:
            return None
        return datetime.fromtimestamp(begun // 10**9, UTC).isoformat(sep=" ")


def build_report(run: Run, *, model: str | None = None, path: str | None = None) -> RunReport:
    """Return the report of a run, of one model or of all that have settled steps."""
    models: list[ModelReport] = []
    unsettled: list[str] = []
    lacking = missing(run)
    for name in [model] if model else run.model_names:
        arrays = settled_steps(run, name)
        if arrays is None:
            unsettled.append(name)
            continue
        facts = model_facts(run, arrays)
        models.append(ModelReport(facts, [*recorded(run, [name]), *findings(facts)], arrays))
        told = {of for track in run.tracks for of, _ in track.unknown_bytes}
        if facts.wire_bytes is None and name not in told:
            lacking.append(f"what {name} sends is not known: its hook is a plain one")
    for name in unsettled:
        seen, why = steps_left_out(run, name)
        lacking.append(
            f"model {name}: none of {seen:,} steps is included{left_out(why)}; train for more of "
            "them, or have fewer sampled"
        )
    of_none = [""] if model is None else []  # ranks that hung outside of all hooks, before any step
    return RunReport(run, path, models, recorded(run, [*unsettled, *of_none]), lacking)


def report_json(report: RunReport) -> str:
    """Return findings and facts for programs, as one JSON object with a newline at its end.

    Times are ns, sizes bytes, shares from 0 to 1, and what nobody knows is null.
    """
    run, others = report.run, other_traffic(report.run)
    source = {"path": report.path, "begun": report.begun, "hosts": run.hosts}
    content = {
        "schema": SCHEMA,
        "run": run.info,
        "source": source if others is None else {**source, "others": others},
        "ranks": len(run.tracks),
        "unaligned": run.unaligned,
        "missing": report.missing,
        "models": [{"facts": one.facts, "findings": one.findings} for one in report.models],
        "findings": report.findings,
    }
    return json_text(content)


_WHY = {
    "warmup": "to warm up",
    "join_dummy": "join() dummy steps",
    "incomplete": "not complete",
    "rebuild": "of earlier buckets",
    "checked": "sampled by hooktrace",
    "hang": "that hold a hang",
}


def left_out(steps: dict[str, int]) -> str:
    """Return a clause of how many steps were left out by each reason; "" of none."""
    why = [f"{count:,} {_WHY[reason]}" for reason, count in steps.items()]
    return f"; left out: {', '.join(why)}" if why else ""
