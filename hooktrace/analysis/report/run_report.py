"""All that is said of a run, before it is printed, drawn or written.

Run --settled_steps--> StepArrays --model_facts--> ModelFacts --rules--> findings
   |---> what the files do not say: a report of part of the data says which part
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...records import RunInfo
from ..document.output import json_text
from ..run import CHECKED, Run, reasons
from ..run.dense import StepArrays, settled_steps
from ..run.missing import missing
from .build_facts import model_facts
from .facts import Finding, ModelFacts
from .findings import findings, recorded
from .head import RunSource, run_source

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
    """A run.

    ``findings``: hangs and anomalies of models of which no step has settled.  ``missing``:
    sentences, the gravest first.  ``unaligned``: ranks whose clock nobody measured.
    """

    run: RunInfo | None
    ranks: int
    models: list[ModelReport]
    findings: list[Finding]
    missing: list[str]
    unaligned: list[int]
    source: RunSource

    @property
    def headline(self) -> str:
        """One line about the run."""
        run = self.run
        if run is None:
            return f"a run of {self.ranks} ranks, of which no file has its first line"
        return (
            f"run {run.run_id}: {self.ranks} of {run.world_size} ranks, {run.backend}, "
            f"torch {run.torch_version}"
        )


def build_report(run: Run, *, model: str | None = None, path: str | None = None) -> RunReport:
    """Return the report of a run, of one model or of all that have settled steps.

    ``path``: where the files are, as the report is to say it.
    """
    models: list[ModelReport] = []
    unsettled: list[str] = []
    lacking: list[str] = []
    for name in [model] if model else run.model_names:
        arrays = settled_steps(run, name)
        if arrays is None:
            unsettled.append(name)
            continue
        facts = model_facts(run, arrays)
        found = [*recorded(run, [name]), *findings(facts)]
        models.append(ModelReport(facts, found, arrays))
        lacking += _not_known(run, facts)
    of_none = [""] if model is None else []  # ranks that hung outside of all hooks, before any step
    return RunReport(
        run=run.info,
        ranks=len(run.tracks),
        models=models,
        findings=recorded(run, [*unsettled, *of_none]),
        missing=[
            *missing(run),
            *lacking,
            *(f"model {name}: {_why_unmeasured(run, name)}" for name in unsettled),
        ],
        unaligned=run.unaligned,
        source=run_source(run, path),
    )


def report_json(report: RunReport) -> str:
    """Return findings and facts for programs, as one JSON object with a newline at its end.

    Times are ns, sizes bytes, shares from 0 to 1, and what nobody knows is null.
    """
    content = {
        "schema": SCHEMA,
        "run": report.run,
        "source": report.source,
        "ranks": report.ranks,
        "unaligned": report.unaligned,
        "missing": report.missing,
        "models": [{"facts": one.facts, "findings": one.findings} for one in report.models],
        "findings": report.findings,
    }
    return json_text(content)


def _not_known(run: Run, model: ModelFacts) -> Iterator[str]:
    """Yield what a report does not know of a model."""
    name = model.model
    told = {of for track in run.tracks for of, _ in track.unknown_bytes}
    if model.wire_bytes is None and name not in told:
        yield (
            f"what {name} sends is not known: its hook is a plain one, and no step was sampled "
            "(error_every)"
        )
    if not model.is_sharded:
        return
    unknown = sum(b.wait_ns is None for b in model.buckets)
    if model.wait_unknown is not None and len(model.ranks) > 1:
        yield (
            f"what ranks wait for each other at the units of {name}: not known, as "
            f"{model.wait_unknown}"
        )
    if model.wait_unknown is None and unknown:
        yield (
            f"what {unknown} of {len(model.buckets)} collectives of {name} wait for their last "
            "rank: not known, as not all ranks are in them, or not in all steps"
        )


def _why_unmeasured(run: Run, model: str) -> str:
    own = [(track, track.is_of(track.steps, model)) for track in run.tracks]
    why = zip(own, reasons(run), strict=True)
    if any((rows & (of == CHECKED)).any() for (_, rows), of in why):
        return (
            "hooktrace looked at a bucket in every step that ended (as with debug=True, a small "
            "error_every, or few steps), so there are no times of training as it is"
        )
    keeps = "DDP keeps its buckets from the second step on"
    if any((rows & track.steps.having("sharded")).any() for track, rows in own):
        keeps = "the first two steps warm up"
        units = [t.units_of(t.is_of(t.buckets, model)).values() for t in run.tracks]
        if all(unit.collective == "all_gather" for each in units for unit in each):
            return (
                "parameters were gathered and no gradients reduced, so that no step has ended; "
                "call a model that does not learn in torch.no_grad(): that is evaluation, which "
                "is no step"
            )
    return f"no step is steady-state, so there is nothing to measure; {keeps}"
