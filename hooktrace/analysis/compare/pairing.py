"""Which buckets of two runs are the same, how far runs can be compared, and what is doubtful.

RunFacts of both --> pairs of places in ``buckets``, and sentences on what is not compared
Comparison --facts of both sides, drift of each series--> doubts in sentences, the gravest first
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from ...records.units import mb, ms, named_ranks, ordinal, percent
from ..run.waits import ONE_RANK
from .comparison import BucketKey, Comparison, RunFacts, Side
from .differences import MOST_RUNS
from .sentence import by_median_alone, mostly_outside

By = Literal["parameters", "size"]


_OF_BUCKETS = ("bucket_cap_mb", "buckets", "gradients")
"""What a sharded model has not, to differ in from one that is not sharded."""


class Pair(NamedTuple):
    """Places of a bucket in ``RunFacts.buckets`` of both."""

    a: int
    b: int
    by: By


def pairs(a: RunFacts, b: RunFacts) -> list[Pair]:
    """Return the buckets of equal parameters, else, where all sizes are equal, of equal index."""
    wanted = {_parameters(one): j for j, one in enumerate(b.buckets) if one.parameters}
    found = [
        Pair(i, wanted[_parameters(one)], "parameters")
        for i, one in enumerate(a.buckets)
        if one.parameters and _parameters(one) in wanted
    ]
    if found or not a.buckets:
        return found
    sizes = [[(x.bucket, x.gradient_bytes) for x in one.buckets] for one in (a, b)]
    is_unnamed = not all(x.parameters for x in (*a.buckets, *b.buckets))
    if is_unnamed and sizes[0] == sizes[1]:
        return [Pair(i, i, "size") for i in range(len(a.buckets))]
    return []


def _parameters(one: BucketKey) -> tuple[str | None, frozenset[tuple[str, tuple[int, ...]]]]:
    """Return what tells a bucket from others; units communicate the same parameters repeatedly."""
    return one.unit, frozenset(one.parameters)


def is_same_model(a: RunFacts, b: RunFacts) -> bool:
    """Return whether both have as many gradients of the same shapes, as far as the files tell.

    Of sharded models each parameter counts once, however often it is communicated.  One that is
    sharded and one that is not have nothing in common but their steps.
    """
    if a.is_sharded != b.is_sharded:
        return False
    shapes = [sorted(_shapes(x)) for x in (a, b)]
    if all(shapes):
        return shapes[0] == shapes[1]
    return a.gradient_bytes == b.gradient_bytes


def _shapes(run: RunFacts) -> list[tuple[int, ...]]:
    every = [p for one in run.buckets for p in one.parameters]
    return [shape for _, shape in (set(every) if run.is_sharded else every)]


def limits(a: RunFacts, b: RunFacts) -> Iterator[str]:
    """Yield how far two runs are compared, where not all of it can be."""
    if a.is_sharded != b.is_sharded:
        ours, theirs = (a, b) if a.is_sharded else (b, a)
        yield (
            f"{ours.name} is sharded by fully_shard (FSDP2) and {theirs.name} is not: a unit is no "
            "bucket, and exposed is not the same of both, so step times are compared and nothing "
            "else"
        )
        return
    if not is_same_model(a, b):
        yield (
            f"{a.model} of {mb(a.gradient_bytes)} and {b.model} of {mb(b.gradient_bytes)} of "
            "gradients are not the same model, so step times are compared and nothing else"
        )
        return
    count = len(pairs(a, b))
    if not a.buckets or not b.buckets:
        noun = "units" if a.is_sharded else "buckets"
        yield f"the files of one run hold no {noun}, so {noun} and stages are not compared"
    elif count < max(len(a.buckets), len(b.buckets)) and a.is_sharded:
        yield (
            f"{count} collectives of units are in both runs, of {len(a.buckets)} in {a.name} and "
            f"{len(b.buckets)} in {b.name}; all others enter totals only"
        )
    elif count < max(len(a.buckets), len(b.buckets)):
        yield (
            f"{count} of {len(a.buckets)} buckets of {a.name} hold the same parameters as one of "
            f"the {len(b.buckets)} of {b.name}; all others enter totals only"
        )
    for one in (a, b) if not a.waits_unknown == b.waits_unknown == ONE_RANK else ():
        if one.waits_unknown is not None:
            yield (
                f"wire is not told apart into waiting and transfer, because in {one.name} "
                f"{one.waits_unknown}"
            )
            return


def unlike(a: RunFacts, b: RunFacts) -> Iterator[str]:
    """Yield in what two set-ups differ, other than the hook."""
    is_of_units, is_mixed = a.is_sharded and b.is_sharded, a.is_sharded != b.is_sharded
    for what, ours, theirs in (
        ("options of the hook", _options(a), _options(b)),
        ("bucket_cap_mb", _cap(a), _cap(b)),
        ("ranks", str(len(a.ranks)), str(len(b.ranks))),
        ("sharded by FSDP2", _sharded(a), _sharded(b)),
        ("collectives of units" if is_of_units else "buckets", _buckets(a), _buckets(b)),
        (
            "what ranks give to collectives" if is_of_units else "gradients",
            mb(a.gradient_bytes),
            mb(b.gradient_bytes),
        ),
        ("hosts", ", ".join(a.hosts), ", ".join(b.hosts)),
        ("torch", a.torch_version, b.torch_version),
        ("backend", a.backend, b.backend),
        ("times of the", a.clock, b.clock),
    ):
        if ours != theirs and not (is_mixed and what in _OF_BUCKETS):
            yield f"{what}: {ours or 'unknown'} in {a.name}, {theirs or 'unknown'} in {b.name}"


def _options(one: RunFacts) -> str:
    return ", ".join(f"{name}={value}" for name, value in one.hook_options) or "none known"


def _cap(one: RunFacts) -> str:
    return "" if one.bucket_cap_bytes is None else f"{one.bucket_cap_bytes / 2**20:g}"


def _sharded(one: RunFacts) -> str:
    return "yes" if one.is_sharded else "no"


def _buckets(one: RunFacts) -> str:
    largest = max((x.gradient_bytes for x in one.buckets), default=0)
    return f"{len(one.buckets)} of up to {mb(largest)}"


def missing_ranks(one: RunFacts) -> str:
    """Return the ranks of a run that have no file, for a sentence; empty where all have."""
    missing = set(range(one.world_size)) - set(one.ranks)
    return named_ranks(missing) if missing else ""


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
    if run.every > 1:
        yield (
            f"{run.name}: the buckets of every {ordinal(run.every)} step alone were read "
            "(--every): stages and buckets are of these"
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
