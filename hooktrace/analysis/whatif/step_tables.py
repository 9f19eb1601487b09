"""Steps to be simulated as arrays: a row a step, padded to the longest.

    StepWork, Machine, Network --one row for each sampled speed--> StepTables

A *round* is one collective of a bucket; a step's rounds are numbered in the order in which they are
issued, which is the same on all ranks: bucket by bucket.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .network import fixed_ns, link_ns, waking_ns
from .work import BucketWork, Floats, Machine, Network, RoundWork, StepWork

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Case: TypeAlias = tuple[StepWork, Machine, Network]


@dataclass(frozen=True, slots=True)
class StepTables:
    """Steps as arrays; times in ns at speed 1.

    (steps,): ``buckets`` and ``rounds`` how many, ``serial``, ``workers``, ``cores``,
    ``wire_cores``, ``call_ns``, ``waking_ns`` of a collective, ``wake_share`` of the time that this
    takes where cores are busy, ``rest_ns``.  (steps, buckets):
    ``compute_ns`` on the training thread before each bucket's hook is called, with one more for the
    end of backward; ``compress_ns``; ``has_rounds``.  (steps, rounds): ``bucket``; ``is_last`` of
    its bucket; ``latency_ns``; ``link_ns`` alone on the link; ``callback_ns``, on the worker after
    the arrival.  (steps, ranks): ``slowness``, by which all of a rank's computing is multiplied,
    and ``begin_ns``, when its training thread begins.
    """

    buckets: Ints
    rounds: Ints
    serial: Bools
    workers: Ints
    cores: Floats
    wire_cores: Floats
    call_ns: Floats
    waking_ns: Floats
    wake_share: Floats
    rest_ns: Floats
    compute_ns: Floats
    compress_ns: Floats
    has_rounds: Bools
    bucket: Ints
    is_last: Bools
    latency_ns: Floats
    link_ns: Floats
    callback_ns: Floats
    slowness: Floats
    begin_ns: Floats


def tables_of(cases: Sequence[Case], slowness: Sequence[Sequence[Sequence[float]]]) -> StepTables:
    """Return the tables of one row for each sample of each case.

    ``slowness``: of each case, sample by sample, that of its ranks, as many in all of them.  A
    sample's first rank has its first gradient at 0, and the others as much later as they are slower
    in what comes before it.
    """
    row = np.repeat(np.arange(len(cases)), [len(samples) for samples in slowness])
    slow = np.array([ranks for samples in slowness for ranks in samples], np.float64)
    tables = {name: table[row] for name, table in _tables(cases).items()}
    begin = (slow - slow[:, :1]) * tables["rest_ns"][:, None]
    return StepTables(**tables, slowness=slow, begin_ns=begin)


def _tables(cases: Sequence[Case]) -> dict[str, Any]:
    """Return the tables of one row a case, by name, without what differs between ranks."""
    works = [work for work, _, _ in cases]
    machines = [machine for _, machine, _ in cases]
    buckets = [work.buckets for work in works]
    alone = [_alone_ns(*case) for case in cases]
    return {
        "buckets": np.array([len(of) for of in buckets], np.int64),
        "rounds": np.array([len(fixed) for fixed, _ in alone], np.int64),
        "serial": np.array([_is_serial(work) for work in works], np.bool_),
        "workers": np.array([machine.workers for machine in machines], np.int64),
        "cores": np.array([machine.cores for machine in machines], np.float64),
        "wire_cores": np.array([machine.wire_cores for machine in machines], np.float64),
        "call_ns": np.array([machine.call_ns for machine in machines], np.float64),
        "waking_ns": np.array(
            [waking_ns(work.ranks, network) for work, _, network in cases], np.float64
        ),
        "wake_share": np.array([_wake_share(*case) for case in cases], np.float64),
        "rest_ns": np.array([work.compute.rest_ns for work in works], np.float64),
        "compute_ns": _padded([_compute_ns(work) for work in works], least=2),
        "compress_ns": _padded([[_compress_ns(one) for one in of] for of in buckets]),
        "has_rounds": _padded([[bool(one.rounds) for one in of] for of in buckets]) > 0,
        "bucket": _padded([_bucket_of_rounds(of) for of in buckets]).astype(np.int64),
        "is_last": _padded([_is_last(of) for of in buckets]) > 0,
        "latency_ns": _padded([fixed for fixed, _ in alone]),
        "link_ns": _padded([link for _, link in alone]),
        "callback_ns": _padded([[ns for one in of for ns in _callbacks_ns(one)] for of in buckets]),
    }


def _wake_share(work: StepWork, machine: Machine, network: Network) -> float:
    """Return what waking up alone is of waking up and waiting for busy cores."""
    alone = waking_ns(work.ranks, network)
    return alone / (alone + machine.turn_ns) if alone > 0 else 1.0


def _alone_ns(
    work: StepWork, machine: Machine, network: Network
) -> tuple[list[float], list[float]]:
    """Return what each round takes beside the link, and on the link if nothing else is there."""
    rounds = [one for bucket in work.buckets for one in bucket.rounds]
    kinds = {one.collective for one in rounds}
    beside, link = {}, {}
    for kind in kinds:  # both are straight lines over the bytes
        at_least = fixed_ns(kind, 0.0, work.ranks, network)
        beside[kind] = at_least, fixed_ns(kind, 1.0, work.ranks, network) - at_least
        link[kind] = link_ns(kind, 1.0, work.ranks, network)
    return (
        [beside[one.collective][0] + beside[one.collective][1] * one.wire_bytes for one in rounds],
        [_on_link_ns(link[one.collective], one, work.ranks, machine) for one in rounds],
    )


def _on_link_ns(ns_of_byte: float, one: RoundWork, ranks: int, machine: Machine) -> float:
    """Return what a round has the link for: its bytes, or what they take of a core if that is more.

    Each element is added on one rank, while others of the same collective are on the link.
    """
    moving = ns_of_byte * one.wire_bytes
    adding = one.adding_ns * (ranks - 1) / ranks
    return max(moving, (moving * machine.wire_cores + adding) * (adding > 0))


def _is_serial(work: StepWork) -> bool:
    """Return whether buckets take turns, as staging/sequencer.py has those of several rounds."""
    return work.serial or any(len(bucket.rounds) > 1 for bucket in work.buckets)


def _compute_ns(work: StepWork) -> Floats:
    """Return what the thread computes before each bucket's call, and after the last one's.

    A bucket's hook is called when its gradients are ready and all buckets before it were launched.
    """
    ready = work.compute.ready_ns
    complete = itertools.accumulate((bucket.last_parameter for bucket in work.buckets), max)
    calls = [float(ready[last]) for last in complete]
    return np.diff([0.0, *calls, max(work.compute.end_ns, *calls, 0.0)])


def _compress_ns(bucket: BucketWork) -> float:
    return bucket.rounds[0].before_ns if bucket.rounds else bucket.after_ns


def _callbacks_ns(bucket: BucketWork) -> list[float]:
    """Return what the worker does after each round: the next one's preparation, or the end."""
    return [*(one.before_ns for one in bucket.rounds[1:]), bucket.after_ns][: len(bucket.rounds)]


def _bucket_of_rounds(buckets: Sequence[BucketWork]) -> list[int]:
    return [i for i, bucket in enumerate(buckets) for _ in bucket.rounds]


def _is_last(buckets: Sequence[BucketWork]) -> list[bool]:
    counts = [len(bucket.rounds) for bucket in buckets]
    return [i == count - 1 for count in counts for i in range(count)]


def _padded(rows: Sequence[Sequence[float] | Floats], least: int = 1) -> Floats:
    """Return rows of any length as one array of ``least`` columns or more, zeros at their ends."""
    padded = np.zeros((len(rows), max(least, *(len(row) for row in rows))))
    for at, row in zip(padded, rows, strict=True):
        at[: len(row)] = row
    return padded
