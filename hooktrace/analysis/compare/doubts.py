"""What makes a comparison doubtful, in sentences.

Comparison --facts of both sides, drift of each series--> sentences, the gravest first
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...records.units import ms, named_ranks, percent
from .comparison import Comparison, RunFacts, Side
from .differences import MOST_RUNS
from .pairing import missing_ranks
from .sentence import by_median_alone, mostly_outside

_DRIFTS = 0.02
"""Of the step time: from which on halves of a run that differ are worth a sentence."""

_FAR_APART = 2
"""Times as many steps as the other run."""


def doubts(found: Comparison) -> Iterator[str]:
    """Yield what speaks against taking the differences at their word."""
    first, second = found.a.runs[0], found.b.runs[0]
    yield from _repeated(found)
    if not found.unlike and first.hook == second.hook:
        yield (
            "as far as the files tell, both have the same hook and set-up: what they differ by is "
            "due to the machines, or to what is not recorded (data, code, a hook's options)"
        )
    if first.run_id and first.run_id == second.run_id and first.name == second.name:
        yield "both are the same run"
    yield from _elsewhere(found.a, found.b)
    for run in (*found.a.runs, *found.b.runs):
        yield from _of_run(run)
    yield from _probed((*found.a.runs, *found.b.runs))
    yield from _drifts(found)
    yield from _outside(found)
    yield from _means(found)
    if max(first.steps, second.steps) >= _FAR_APART * min(first.steps, second.steps):
        yield f"{first.steps:,} steps of {first.name} and {second.steps:,} of {second.name} count"


def _repeated(found: Comparison) -> Iterator[str]:
    told = _runs_needed(found)
    if not found.by_runs:
        yield (
            "One run a side: the intervals are of these two runs. Runs of one set-up differ among "
            "themselves too, by what else the machines do; repeat each and pass A1,A2 B1,B2 to "
            f"have that in the intervals{f'; {told}' if told else ''}"
        )
        return
    if 1 in (len(found.a.runs), len(found.b.runs)):
        yield "one side has a single run: its spread between runs is taken to be the other side's"
    step = found.quantity("period")
    if told is not None and step is not None and step.verdict == "not shown":
        yield told


def _runs_needed(found: Comparison) -> str | None:
    step = found.quantity("period")
    if step is None or step.runs_needed is None:
        return None
    count = f"{step.runs_needed}" if found.by_runs else f"{step.runs_needed} or more"
    count = count if step.runs_needed <= MOST_RUNS else f"more than {MOST_RUNS}"
    apart = ms(abs(step.difference or 0.0))
    return f"to tell {apart} a step, likely {count} runs a side are needed"


def _elsewhere(a: Side, b: Side) -> Iterator[str]:
    for what, ours, theirs in (
        ("hosts", _all(a, "hosts"), _all(b, "hosts")),
        ("versions of torch", _all(a, "torch_version"), _all(b, "torch_version")),
        ("backends", _all(a, "backend"), _all(b, "backend")),
    ):
        if ours != theirs:
            yield (
                f"other {what}: {', '.join(ours)} and {', '.join(theirs)}; what is due to them "
                "cannot be told from what is due to the hook"
            )


def _all(side: Side, field: str) -> list[str]:
    values = (getattr(run, field) for run in side.runs)
    return sorted({x for v in values for x in ((v,) if isinstance(v, str) else v) if x})


def _of_run(run: RunFacts) -> Iterator[str]:
    if missing := missing_ranks(run):
        yield f"{run.name}: no file of {missing} is there or readable, so means are over the others"
    if run.unaligned and run.waits_unknown is None:
        yield (
            f"{run.name}: the clock of {named_ranks(run.unaligned)} is unknown, so what a rank's "
            "stage is longer than the shortest one of the same collective is taken for its wait"
        )
    least, most = run.least_wire_bytes, run.most_wire_bytes
    if least is not None and most and least < 0.9 * most:
        yield (
            f"{run.name}: steps are of several kinds, which send from {least / 1e6:.2f} to "
            f"{most / 1e6:.2f} MB; a median is of the commonest kind, so look at the mean"
        )
    if run.beside:
        may = "communicates" if len(run.beside) == 1 else "communicate"
        yield (
            f"{run.name}: {' and '.join(run.beside)} {may} within the steps of {run.model} too: "
            "what is outside of communication here holds the collectives of other models"
        )
    if not run.closed:
        yield f"{run.name}: a file has no end: the process was killed, or it still runs"


def _probed(runs: Sequence[RunFacts]) -> Iterator[str]:
    counts = [f"{x.probed} of {x.probed + x.steps} in {x.name}" for x in runs if x.probed]
    if counts:
        yield f"steps probed by hooktrace are left out of all times: {', '.join(counts)}"


def _drifts(found: Comparison) -> Iterator[str]:
    step = found.quantity("period")
    if step is None or step.difference is None:
        return
    for side, drift, of in ((found.a, step.drift_a, step.a), (found.b, step.drift_b, step.b)):
        if drift is None or not of or abs(drift) < max(_DRIFTS * of, abs(step.difference)):
            continue
        yield (
            f"{side.runs[0].name}: steps of its second half take {percent(abs(drift) / of)} "
            f"{'more' if drift > 0 else 'less'} than those of its first, which is more than the "
            "runs differ: it drifts, or was still warming up"
        )


def _outside(found: Comparison) -> Iterator[str]:
    if found.step is not None and found.step.differs and mostly_outside(found):
        yield (
            "most of the step time's difference is outside of communication: look first for what "
            "else the machines do, and for other data or code"
        )


def _means(found: Comparison) -> Iterator[str]:
    if by_median_alone(found):
        yield (
            "the mean over all steps, in which slow steps count, does not say the same as the "
            "median: it is what a whole run costs"
        )
