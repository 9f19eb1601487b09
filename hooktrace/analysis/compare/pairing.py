"""Which buckets of two runs are the same, and how far two runs can be compared.

RunFacts of both --> pairs of places in ``buckets``, and sentences on what is not compared
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from ...records.units import mb, named_ranks
from .comparison import BucketKey, RunFacts

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
    for one in (a, b):
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
