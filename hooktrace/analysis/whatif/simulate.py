"""One step, simulated: gradients ready -> training thread -> workers -> wire -> callbacks -> done.

    StepWork, Machine, Network --ranks_of_a_job--> speeds of its middle and its slowest rank
                               --step_tables.py, replay.py--> when everything happens there
                               --> SimulatedStep

**Ranks.** All ranks do the same work, at speeds that differ from step to step by
``Compute.jitter``.  A collective begins when its last rank comes, and the slowest rank is last in
all of them, since nothing on a rank is sooner for being slower (but rarely, where a rank's threads
want more than its cores); so the slowest and the middle one of n ranks stand for all, and 10,000
ranks cost what two do.  How slow the slowest of n is has the distribution function F^n, F being
that of one rank's speed (log-normal, so that none is negative): a step is simulated at the middles
of ``_SAMPLES`` equally likely parts of it, without any random number, and step time and exposed
time are the means of these.  Everything else that is returned is of the sample in the middle.

**Better is not always sooner.** With one worker and hooks of one round, more bandwidth, less
latency or more cores never prolong a step.  Elsewhere they can, in the model as in a machine: the
callback of a bucket that comes sooner takes the core that backward needs, or its turn comes so
early that the training thread has to compress the next one.  Of 20,000 random steps with two
workers and ample cores more bandwidth prolonged none; where callbacks and backward share one core,
one in 8, by up to 11 %.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from statistics import NormalDist

import numpy as np

from .replay import StepTimes, replay
from .step_tables import Case, StepTables, tables_of
from .work import Floats, Machine, Network, SimulatedStep, StepWork

_SAMPLES = 3
_AT_ONCE = 2_000_000
"""Rounds of all steps that are simulated together, padding included: bounds the memory."""


def simulate(work: StepWork, machine: Machine, network: Network) -> SimulatedStep:
    """Return when everything in a step happens, and how long the step takes.

    Raises ``UsageError`` for a collective of which nobody knows what it sends.
    """
    return simulate_many([(work, machine, network)])[0]


def simulate_many(cases: Sequence[Case]) -> list[SimulatedStep]:
    """Return what ``simulate`` does of each case; a thousand take a second or two."""
    found: list[SimulatedStep | None] = [None] * len(cases)
    for rows in _batches(cases):
        for row, step in zip(rows, _simulate_batch([cases[row] for row in rows]), strict=True):
            found[row] = step
    return [step for step in found if step is not None]


def _batches(cases: Sequence[Case]) -> Iterator[list[int]]:
    """Yield rows of cases that are simulated together: of about as many rounds, and not too many.

    All of a batch go on until the longest has ended.
    """
    sizes = [sum(len(bucket.rounds) + 1 for bucket in work.buckets) for work, _, _ in cases]
    batch: list[int] = []
    for row in sorted(range(len(cases)), key=sizes.__getitem__):
        if batch and (
            sizes[row] > 2 * sizes[batch[0]] + 20 or (len(batch) + 1) * sizes[row] > _AT_ONCE
        ):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _simulate_batch(cases: Sequence[Case]) -> list[SimulatedStep]:
    samples = [ranks_of_a_job(work.ranks, work.compute.jitter) for work, _, _ in cases]
    most = max(len(of[0]) for of in samples)
    tables = tables_of(cases, [[(ranks * most)[:most] for ranks in of] for of in samples])
    times = replay(tables)
    step_ns, exposed_ns = _step_ns(tables, times), _exposed_ns(tables, times)
    ends = itertools.accumulate(len(of) for of in samples)
    return [
        _simulated(tables, times, slice(end - len(of), end), step_ns, exposed_ns)
        for end, of in zip(ends, samples, strict=True)
    ]


def ranks_of_a_job(ranks: int, jitter: float) -> list[list[float]]:
    """Return, sample by sample, the slowness of the middle and of the slowest of ``ranks``.

    Without jitter, and of one rank, there is one sample of one rank.  Slowness is 1 on average over
    ranks and steps, with a standard deviation of ``jitter``.
    """
    if ranks < 2 or jitter <= 0:
        return [[1.0]]
    sigma = float(np.sqrt(np.log1p(jitter**2)))
    parts = (np.arange(_SAMPLES) + 0.5) / _SAMPLES
    slowest = [np.exp(sigma * NormalDist().inv_cdf(u ** (1 / ranks)) - sigma**2 / 2) for u in parts]
    return [[min(1.0, float(one)), float(one)] for one in slowest]


def _last_done(times: StepTimes) -> Floats:
    """Return when each step's last result is there on its first rank; minus infinity: no bucket."""
    last: Floats = np.fmax.reduce(times.done[:, 0], axis=1, initial=-np.inf)
    return last


def _step_ns(tables: StepTables, times: StepTimes) -> Floats:
    """Return how long each step takes: to its last result or the end of backward, and the rest."""
    rest = tables.rest_ns * tables.slowness[:, 0]
    step: Floats = np.maximum(_last_done(times), times.backward[:, 0]) + rest
    return step


def _exposed_ns(tables: StepTables, times: StepTimes) -> Floats:
    """Return the communication that each step's backward pass did not hide (records/intervals.py).

    What the last bucket's hook took on the training thread is no part of backward.
    """
    rows, last = np.arange(len(tables.buckets)), np.maximum(tables.buckets - 1, 0)
    ready, launched = times.ready[rows, 0, last], times.launched[rows, 0, last]
    hidden_to = np.fmax(ready, times.backward[:, 0] - (launched - ready))
    exposed: Floats = np.fmax(0.0, _last_done(times) - hidden_to)
    return exposed


def _simulated(
    tables: StepTables, times: StepTimes, samples: slice, step_ns: Floats, exposed_ns: Floats
) -> SimulatedStep:
    """Return what a job's samples, rows of the tables, come to."""
    row = (samples.start + samples.stop) // 2
    buckets, rounds = int(tables.buckets[row]), int(tables.rounds[row])
    return SimulatedStep(
        step_ns=float(step_ns[samples].mean()),
        exposed_ns=float(exposed_ns[samples].mean()),
        backward_ns=float(times.backward[row, 0]),
        ready_ns=times.ready[row, 0, :buckets],
        launched_ns=times.launched[row, 0, :buckets],
        done_ns=times.done[row, 0, :buckets],
        round_bucket=tables.bucket[row, :rounds],
        issued_ns=times.issued[row, 0, :rounds],
        started_ns=times.started[row, 0, :rounds],
        met_ns=times.met[row, 0, :rounds],
        arrived_ns=times.arrived[row, 0, :rounds],
    )
