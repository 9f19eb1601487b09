"""How far runs can be compared, in what they are unlike, and what is doubtful, in sentences.

RunFacts of both --> limits, unlike; Comparison --facts of both--> doubts, the gravest first
"""

from __future__ import annotations

from collections.abc import Iterator

from ...records.hook_names import how_to_see
from ...records.units import mb
from ..run.waits import ONE_RANK
from .comparison import Comparison, RunFacts


def is_same_model(a: RunFacts, b: RunFacts) -> bool:
    """Return whether both have as many gradients of the same shapes, as far as the files tell.

    Of sharded models each parameter counts once, however often it is communicated.  One that is
    sharded and one that is not have nothing in common but their steps.
    """
    if a.is_sharded != b.is_sharded:
        return False
    if a.shapes and b.shapes:
        return a.shapes == b.shapes
    return a.gradient_bytes == b.gradient_bytes


def limits(a: RunFacts, b: RunFacts) -> Iterator[str]:
    """Yield how far two runs are compared, where not all of it can be."""
    alone = "step times are compared and nothing else"
    unknown = [one for one in (a, b) if one.split_unknown is not None]
    if a.is_sharded != b.is_sharded:
        ours, theirs = (a, b) if a.is_sharded else (b, a)
        yield (
            f"{ours.name} is sharded by fully_shard (FSDP2) and {theirs.name} is not: a unit is no "
            f"bucket, and exposed is not the same of both, so {alone}"
        )
    elif not is_same_model(a, b):
        yield (
            f"{a.model} of {mb(a.gradient_bytes)} and {b.model} of {mb(b.gradient_bytes)} of "
            f"gradients are not the same model, so {alone}"
        )
    elif unknown and not a.split_unknown == b.split_unknown == ONE_RANK:
        yield (
            "wire is not split into straggler wait and transfer, because in "
            f"{unknown[0].name} {unknown[0].split_unknown}"
        )
    for hook in sorted({one.hook for one in (a, b) if one.is_plain}):
        yield (
            f"{hook} is a plain hook: its stages are not seen, so they are not compared; to see "
            f"them, {how_to_see(hook)}"
        )


def unlike(a: RunFacts, b: RunFacts) -> Iterator[str]:
    """Yield in what two set-ups differ, other than the hook.

    A sharded model has no buckets and no cap, to differ in from one that is not.
    """
    told = [dict(_set_up(one)) for one in (a, b)]
    for what, ours in told[0].items():
        theirs = told[1].get(what, ours)
        if ours != theirs:
            yield f"{what}: {ours or 'unknown'} in {a.name}, {theirs or 'unknown'} in {b.name}"


def _set_up(one: RunFacts) -> Iterator[tuple[str, str]]:
    """Yield names and texts of what a run was set up with."""
    options = ", ".join(f"{name}={value}" for name, value in one.hook_options)
    yield "options of the hook", options or "none known"
    cap = one.bucket_cap_bytes
    if not one.is_sharded:
        yield "bucket_cap_mb", "" if cap is None else f"{cap / 2**20:g}"
    yield "ranks", str(len(one.ranks))
    yield "sharded by FSDP2", "yes" if one.is_sharded else "no"
    yield one.noun, f"{one.bucket_count} of up to {mb(one.largest_bytes)}"
    given = "what ranks give to collectives" if one.is_sharded else "gradients"
    yield given, mb(one.gradient_bytes)
    yield "hosts", ", ".join(one.hosts)
    yield "torch", one.torch_version
    yield "backend", one.backend
    yield "times of the", one.clock


_FAR_APART = 2
"""Times as many steps as the other run."""


def doubts(found: Comparison) -> Iterator[str]:
    """Yield what speaks against taking the differences at their word."""
    first, second = found.a, found.b
    yield (
        "the intervals are of these two runs. Runs of one set-up differ among themselves too, by "
        "what else the machines do: compare two of them to see by how much"
    )
    if not found.unlike and first.hook == second.hook:
        yield (
            "as far as the files tell, both have the same hook and set-up: what they differ by is "
            "due to the machines, or to what is not recorded (data, code, a hook's options)"
        )
    if first.run_id and first.run_id == second.run_id and first.name == second.name:
        yield "both are the same run"
    for run in (first, second):
        yield from _of_run(run)
    counts = [
        f"{x.checked} of {x.checked + x.steps} in {x.name}" for x in (first, second) if x.checked
    ]
    if counts:
        yield f"steps sampled by hooktrace are left out of all times: {', '.join(counts)}"
    if max(first.steps, second.steps) >= _FAR_APART * min(first.steps, second.steps):
        each = f"{first.steps:,} steps of {first.name} and {second.steps:,} of {second.name}"
        yield f"{each} are included"


def _of_run(run: RunFacts) -> Iterator[str]:
    for text in run.missing:
        yield f"{run.name}: {text}"
    if run.thin is not None:
        yield f"{run.name}, steps: {run.thin}"
    if run.several_kinds is not None:
        yield f"{run.name}: {run.several_kinds}"
    if run.beside:
        may = "communicates" if len(run.beside) == 1 else "communicate"
        yield (
            f"{run.name}: {' and '.join(run.beside)} {may} within the steps of {run.model} too: "
            "what is outside of communication here holds the collectives of other models"
        )
