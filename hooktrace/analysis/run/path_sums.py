"""What critical paths consist of, over the steps of a run: in ns and in words.

Run, model --critical_path_sums--> PathSums: ns by kind, rank and bucket, of some steps
PathSums.ns, or sums_of one path --parts--> PathPart of each kind and rank, the largest first
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...records.stall import ENOUGH_STEPS, is_stall
from ...records.units import listed
from .columns import UNKNOWN, Ints
from .dense import StepArrays, middle, settled_steps
from .others import models_beside
from .path import CriticalPaths, Kind, Segment
from .run import Run

_MOST_STEPS = 100
_LEAST_SHARE = 0.05
"""Of a part that a bucket has at least to be named."""

_OF_RANK = ("compute", "compress", "decompress")


@dataclass(frozen=True, slots=True)
class PathSums:
    """Paths of ``steps`` steps, a sample of the ``of`` that count; ns of all of them together.

    ``ns``: by kind, rank and bucket.  ``why_unknown``: a clause, where no step has a path.
    ``beside``: models that communicate within its steps, as ``models_beside`` has them: what is
    compute here holds their collectives.
    """

    steps: int
    of: int
    length_ns: int
    ns: Counter[tuple[Kind, int, int]]
    why_unknown: str | None
    beside: tuple[str, ...] = ()


def sums_of(segments: Iterable[Segment]) -> Counter[tuple[Kind, int, int]]:
    """Return the ns of segments by kind, rank and bucket."""
    found: Counter[tuple[Kind, int, int]] = Counter()
    for one in segments:
        found[one.kind, one.rank, one.bucket] += one.end - one.start
    return found


def critical_path_sums(run: Run, model: str, *, most: int = _MOST_STEPS) -> PathSums:
    """Return what the paths of a model's steps consist of, of at most ``most`` steps.

    They are chosen by chance, always the same, of those that stand for all where the files have the
    buckets of some only.  Only steps count whose times count on all ranks
    (``counts.py``), without those that stalled: one would be longer than all others together.
    """
    paths, arrays = CriticalPaths(run, model), settled_steps(run, model)
    steps, of = (np.zeros(0, np.int64),) * 2
    if arrays is not None:
        steps = _usual(arrays)
        of = np.intersect1d(steps, arrays.sample.steps)
    # Not every k-th: jobs repeat themselves, and a step of a kind would be all, or none.
    chosen = np.random.default_rng(0).permutation(of)[:most]
    every = [paths.of(step) for step in chosen.tolist()] if paths.why_unknown is None else []
    known = [path for path in every if path.why_unknown is None]
    why = paths.why_unknown or next((path.why_unknown for path in every), "no step counts")
    sums = sums_of(one for path in known for one in path.segments)
    length = sum(path.end - path.start for path in known)
    why = None if known else why
    return PathSums(len(known), len(steps), length, sums, why, models_beside(run, model))


def _usual(arrays: StepArrays) -> Ints:
    """Return the steps that all ranks have and that did not stall, ascending."""
    is_usual = ~np.isnan(arrays.by_step("step")).any(axis=0)
    usual, period = middle(arrays.exposed), middle(arrays.period)
    if len(arrays.steps) >= ENOUGH_STEPS and not np.isnan(usual + period):
        longest = np.fmax.reduce(arrays.exposed, axis=0).tolist()
        is_usual &= np.array([not is_stall(ns, usual, period) for ns in longest])
    return arrays.steps[is_usual]


class PathPart(NamedTuple):
    """What of paths is of one kind, and of one rank where that matters; ``ns`` of all of them.

    ``text``: such as ``compute of rank 2``.
    """

    text: str
    ns: int


def parts(ns: Counter[tuple[Kind, int, int]], beside: tuple[str, ...] = ()) -> list[PathPart]:
    """Return the parts, the largest first; ``beside``: as in ``PathSums``."""
    grouped: dict[tuple[Kind, int], Counter[int]] = {}
    for (kind, rank, bucket), of in ns.items():
        whose = kind, rank if kind in _OF_RANK else UNKNOWN
        grouped.setdefault(whose, Counter())[bucket] += of
    found = [
        PathPart(_text(kind, rank, by_bucket, beside), by_bucket.total())
        for (kind, rank), by_bucket in grouped.items()
    ]
    return sorted(found, key=lambda part: -part.ns)


def _text(kind: Kind, rank: int, by_bucket: Counter[int], beside: tuple[str, ...]) -> str:
    """Return what a part is called; of its buckets those that matter."""
    of = []
    if kind != "compute":
        least = _LEAST_SHARE * by_bucket.total()
        buckets = sorted(bucket for bucket, ns in by_bucket.items() if ns >= least)
        of.append(f"bucket{'s' if len(buckets) > 1 else ''} {listed(buckets)}")
    if kind in _OF_RANK:
        of.append("a rank that clocks do not tell apart" if rank == UNKNOWN else f"rank {rank}")
    holds = beside if kind == "compute" else ()
    return " and ".join([f"{kind} of {', '.join(of)}", *(f"all of {name}" for name in holds)])
