"""All that is said of a run, before it is printed, drawn or written.

Timeline --settled_steps--> StepArrays --build_facts--> ModelFacts --rules--> findings
--missing--------> what the files do not say
"""

from __future__ import annotations

from dataclasses import dataclass

from ...records import RunInfo
from ..timeline import Timeline
from .build_facts import anomaly_facts, model_facts
from .causes import lags
from .facts import Finding, ModelFacts
from .findings import anomaly_findings, findings
from .missing import missing
from .step_arrays import Floats, StepArrays, settled_steps


@dataclass(frozen=True, slots=True)
class ModelReport:
    """One model: what is known, what is said of it, and what its pictures are drawn from.

    ``lags``: (ranks, buckets), median ns after the first rank; NaN where unknown.
    """

    facts: ModelFacts
    findings: list[Finding]
    arrays: StepArrays
    lags: Floats


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run.

    ``findings``: anomalies of models of which no step has settled.  ``missing``: sentences.
    ``unaligned``: ranks whose clock nobody measured.
    """

    run: RunInfo | None
    ranks: int
    models: list[ModelReport]
    findings: list[Finding]
    missing: list[str]
    unaligned: list[int]

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


def build_report(timeline: Timeline, *, model: str | None = None) -> RunReport:
    """Return the report of a run, of one model or of all that have settled steps."""
    names = [model] if model is not None else timeline.models
    models = []
    for name in names:
        arrays = settled_steps(timeline, name)
        if arrays is not None:
            models.append(_model_report(timeline, arrays))
    unsettled = [name for name in names if name not in {one.facts.model for one in models}]
    return RunReport(
        run=timeline.run,
        ranks=len(timeline.tracks),
        models=models,
        findings=anomaly_findings(anomaly_facts(timeline, unsettled)),
        missing=missing(timeline)
        + [
            f"model {name}: no step has settled, so there is nothing to measure; DDP keeps its "
            "buckets from the second step on"
            for name in unsettled
        ],
        unaligned=timeline.unaligned,
    )


def _model_report(timeline: Timeline, arrays: StepArrays) -> ModelReport:
    after_first = lags(arrays)
    facts = model_facts(timeline, arrays, after_first)
    return ModelReport(facts, findings(facts, timeline.run), arrays, after_first)
