"""The threads of many steps' ranks, from event to event, all steps at once.

    StepTables --Replay.run--> StepTimes: when each bucket and each round of it got where

Each rank has its training thread and the backend's workers.  In each turn of the loop every step
goes on to its own next event:

    training thread  computing -> calling -> compressing -> (issues the first round) -> computing
                                     +-> (bucket must wait for its turn) ------------------^
    worker           idle -> waiting for the last rank -> waking up -> latency -> on the link
                        ^      (issues the next round, or the bucket is done) <-- in the callback
                        +-- compressing the bucket whose turn it is <----------------------+

A step's time passes as in a fluid: transfers have the link one after another, in the order in which
they were issued, as messages do that go over one connection; threads that want more than the rank's
cores all get the same share of what they want (those that wake up want little then, and wait for
their turn), and nothing else shares anything.  The state is arrays
(steps, ranks, 1 + workers), so that a turn of the loop costs little more for some hundred steps
than for one.  simpy, the discrete-event library that is kept best, goes through one step at a time:
1.3 us for a bare timeout, and each change of a share interrupts all that is running and begins it
again, which for a thousand steps takes half a minute.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .step_tables import Ints, StepTables
from .work import Floats

IDLE, COMPUTING, CALLING, COMPRESSING, IN_CALLBACK = range(5)
WAITING, WAKING_UP, LATENCY, ON_LINK, OVER = range(5, 10)
_NEEDS_CORE = np.zeros(10, np.bool_)
_NEEDS_CORE[[COMPUTING, CALLING, COMPRESSING, IN_CALLBACK, WAKING_UP]] = True
_WANTS = _NEEDS_CORE.astype(np.float64)
_WANTS[WAKING_UP] = 0.0
"""Cores; of threads that wake up see ``_WAKING_CORES``."""
_WAKING_CORES = 1.6
"""Two of gloo's threads wake up on each rank: measured, an all-reduce of 4 bytes to 64 KB takes
0.35 to 0.4 ms, and 0.5 to 0.65 ms of processor time beside its caller's.
"""
_TRAINING = 0
"""The training thread's place among a rank's threads; workers follow."""
_AT_ONCE_NS = 1e-6
"""What ends so soon after another thing ends with it: rounding, a billionth of what matters."""
_NEVER = np.inf
_NO_ROUND = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class StepTimes:
    """When what happened, in ns; (steps, ranks, buckets or rounds), NaN where there is none.

    ``backward``, (steps, ranks): the training thread has ended backward.
    """

    backward: Floats
    ready: Floats
    launched: Floats
    done: Floats
    issued: Floats
    started: Floats
    met: Floats
    arrived: Floats


class Replay:
    """The state of all steps between two events."""

    def __init__(self, tables: StepTables) -> None:
        self._tables = tables
        steps, ranks = tables.slowness.shape
        most = int(min(tables.workers.max(initial=1), tables.rounds.max(initial=1) or 1))
        of_threads, of_ranks = (steps, ranks, 1 + most), (steps, ranks)
        self._now = np.zeros(steps)
        self._phase = np.full(of_threads, IDLE)
        self._left = np.full(of_threads, _NEVER)
        self._round = np.zeros(of_threads, np.int64)
        self._called = np.zeros(of_ranks, np.int64)  # buckets whose hook has returned
        self._submitted = np.zeros(of_ranks, np.int64)  # buckets that may have their turn
        self._begun = np.zeros(of_ranks, np.int64)  # buckets that have had it
        self._lane_busy = np.zeros(of_ranks, np.bool_)
        self._issued = np.zeros(of_ranks, np.int64)  # rounds
        self._started = np.zeros(of_ranks, np.int64)  # rounds that have a worker
        buckets = (*of_ranks, tables.compress_ns.shape[1])
        rounds = (*of_ranks, tables.bucket.shape[1])
        self.times = StepTimes(
            np.full(of_ranks, np.nan),
            *(np.full(buckets, np.nan) for _ in range(3)),
            *(np.full(rounds, np.nan) for _ in range(4)),
        )
        c, k = (one.ravel() for one in np.indices(of_ranks))
        self._enter(c, k, _TRAINING, COMPUTING, self._own(c, k, tables.compute_ns[c, 0]))
        self._left[:, :, _TRAINING] += tables.begin_ns

    def run(self) -> StepTimes:
        """Replay all steps to their ends."""
        while True:
            self._start_rounds()
            self._meet()
            ended = self._advance()
            if ended is None:
                return self.times
            self._turn(*ended)

    def _own(self, c: Ints, k: Ints, ns: Floats) -> Floats:
        """Return what a rank needs for what takes ``ns`` at speed 1."""
        own: Floats = ns * self._tables.slowness[c, k]
        return own

    def _enter(
        self, c: Ints, k: Ints, thread: Ints | int, phase: int, left: Floats | float
    ) -> None:
        self._phase[c, k, thread] = phase
        self._left[c, k, thread] = left

    # Between events.

    def _start_rounds(self) -> None:
        """Give issued rounds to free workers, first in first out."""
        for worker in range(1, self._phase.shape[2]):
            free = (self._phase[:, :, worker] == IDLE) & (self._started < self._issued)
            c, k = np.nonzero(free & (worker <= self._tables.workers)[:, None])
            if len(c):
                first = self._started[c, k]
                self._round[c, k, worker] = first
                self._started[c, k] = first + 1
                self.times.started[c, k, first] = self._now[c]
                self._enter(c, k, worker, WAITING, _NEVER)

    def _meet(self) -> None:
        """Let those rounds begin for which all ranks have a worker."""
        everywhere = self._started.min(axis=1)[:, None, None]
        waits = (self._phase == WAITING) & (self._round < everywhere)
        waits[:, :, _TRAINING] = False
        c, k, worker = np.nonzero(waits)
        if len(c):
            met = self._round[c, k, worker]
            self.times.met[c, k, met] = self._now[c]
            self._enter(c, k, worker, WAKING_UP, self._tables.waking_ns[c])

    def _advance(self) -> tuple[Ints, Ints, Ints] | None:
        """Let time pass until each step's next event; returns the threads that have ended a phase.

        ``None`` when nothing is left in any step.
        """
        rates = self._rates()
        takes = np.divide(self._left, rates, out=np.full_like(rates, _NEVER), where=rates > 0)
        passes = takes.min(axis=(1, 2))
        goes_on = passes < _NEVER
        if not goes_on.any():
            return None
        passes = np.where(goes_on, passes, 0.0)
        ended = takes <= passes[:, None, None] + _AT_ONCE_NS
        self._now += passes
        self._left -= rates * passes[:, None, None]
        return np.nonzero(ended)  # type: ignore[return-value]  # of three dimensions

    def _rates(self) -> Floats:
        """Return how fast each thread's phase passes, a share of its speed alone."""
        tables = self._tables
        needs_core, on_link = _NEEDS_CORE[self._phase], self._phase == ON_LINK
        transfers = on_link[:, 0].sum(axis=1)  # the same ones on all ranks
        waking = self._phase == WAKING_UP
        wakes = _WAKING_CORES * waking.sum(axis=2)
        wanted = _WANTS[self._phase].sum(axis=2) + (tables.wire_cores * (transfers > 0))[:, None]
        cores = tables.cores[:, None]
        # Where cores are busy, waking up is mostly waiting for one.
        waits = (wanted + wakes > cores).any(axis=1)
        wake = np.where(waits, tables.wake_share, 1.0)[:, None]
        share = np.minimum(1.0, cores / np.maximum(wanted + wakes * wake, 1e-12))
        rates = np.where(needs_core, share[:, :, None], 1.0)
        # What all ranks do together is as fast as the busiest of them.
        together = share.min(axis=1)[:, None, None]
        rates = np.where(waking, together * wake[:, :, None], rates)
        first = np.where(on_link, self._round, _NO_ROUND).min(axis=2, keepdims=True)
        of_link = np.where(self._round == first, together, 0.0)
        passed: Floats = np.where(on_link, of_link, rates)
        return passed

    # What follows the end of a phase; a step and a rank come once in each call.

    def _turn(self, c: Ints, k: Ints, thread: Ints) -> None:
        phase = self._phase[c, k, thread]
        for ended, what_follows in (
            (WAKING_UP, self._awake),
            (LATENCY, self._latency_ended),
            (ON_LINK, self._arrived),
            (IN_CALLBACK, self._callback_ended),
            (COMPRESSING, self._compressed),
            (CALLING, self._called_hook),
            (COMPUTING, self._computed),
        ):
            of = phase == ended
            if of.any():
                what_follows(c[of], k[of], thread[of])

    def _computed(self, c: Ints, k: Ints, thread: Ints) -> None:
        """Call the hook of the next bucket, or end backward."""
        bucket, now = self._called[c, k], self._now[c]
        is_over = bucket == self._tables.buckets[c]
        self.times.backward[c[is_over], k[is_over]] = now[is_over]
        self._enter(c[is_over], k[is_over], _TRAINING, OVER, _NEVER)
        c, k, bucket, now = (one[~is_over] for one in (c, k, bucket, now))
        self.times.ready[c, k, bucket] = now
        self._enter(c, k, _TRAINING, CALLING, self._own(c, k, self._tables.call_ns[c]))

    def _called_hook(self, c: Ints, k: Ints, thread: Ints) -> None:
        """Compress the bucket, or leave it to the thread that ends those before it."""
        self._submitted[c, k] += 1
        waits = self._tables.serial[c] & self._lane_busy[c, k]
        self._begin_bucket(c[~waits], k[~waits], thread[~waits])
        self._hook_returned(c[waits], k[waits])

    def _begin_bucket(self, c: Ints, k: Ints, thread: Ints) -> None:
        bucket = self._begun[c, k]
        self._begun[c, k] = bucket + 1
        self._lane_busy[c, k] = True
        self._enter(c, k, thread, COMPRESSING, self._own(c, k, self._tables.compress_ns[c, bucket]))

    def _compressed(self, c: Ints, k: Ints, thread: Ints) -> None:
        """Issue the bucket's first round; without any it is done."""
        bucket = self._begun[c, k] - 1
        goes = self._tables.has_rounds[c, bucket]
        self._issue(c[goes], k[goes])
        self._enter(c, k, thread, IDLE, _NEVER)
        ends = ~goes
        self._bucket_done(c[ends], k[ends], thread[ends], bucket[ends])
        trains = thread == _TRAINING
        self._hook_returned(c[trains], k[trains])

    def _issue(self, c: Ints, k: Ints) -> None:
        self.times.issued[c, k, self._issued[c, k]] = self._now[c]
        self._issued[c, k] += 1

    def _hook_returned(self, c: Ints, k: Ints) -> None:
        """Go on with backward; after the last bucket when nobody has or waits for a turn."""
        bucket = self._called[c, k]
        self._called[c, k] = bucket + 1
        is_last = bucket + 1 == self._tables.buckets[c]
        waits = is_last & self._tables.serial[c] & self._lane_busy[c, k]
        self._enter(c[waits], k[waits], _TRAINING, WAITING, _NEVER)
        self._go_on(c[~waits], k[~waits])

    def _go_on(self, c: Ints, k: Ints) -> None:
        called = self._called[c, k]
        self.times.launched[c, k, called - 1] = self._now[c]
        computes = self._tables.compute_ns[c, called]
        self._enter(c, k, _TRAINING, COMPUTING, self._own(c, k, computes))

    def _awake(self, c: Ints, k: Ints, thread: Ints) -> None:
        latency_ns = self._tables.latency_ns[c, self._round[c, k, thread]]
        self._enter(c, k, thread, LATENCY, latency_ns)

    def _latency_ended(self, c: Ints, k: Ints, thread: Ints) -> None:
        link_ns = self._tables.link_ns[c, self._round[c, k, thread]]
        self._enter(c, k, thread, ON_LINK, link_ns)

    def _arrived(self, c: Ints, k: Ints, thread: Ints) -> None:
        at = self._round[c, k, thread]
        self.times.arrived[c, k, at] = self._now[c]
        self._enter(c, k, thread, IN_CALLBACK, self._own(c, k, self._tables.callback_ns[c, at]))

    def _callback_ended(self, c: Ints, k: Ints, thread: Ints) -> None:
        """Free the worker: the next round is issued, or the bucket is done."""
        self._enter(c, k, thread, IDLE, _NEVER)
        at = self._round[c, k, thread]
        is_last = self._tables.is_last[c, at]
        self._issue(c[~is_last], k[~is_last])
        c, k, thread, at = (one[is_last] for one in (c, k, thread, at))
        self._bucket_done(c, k, thread, self._tables.bucket[c, at])

    def _bucket_done(self, c: Ints, k: Ints, thread: Ints, bucket: Ints) -> None:
        self.times.done[c, k, bucket] = self._now[c]
        serial = self._tables.serial[c]
        self._next_turn(c[serial], k[serial], thread[serial])

    def _next_turn(self, c: Ints, k: Ints, thread: Ints) -> None:
        """Begin the bucket that waits, on this very thread; let the training thread go on."""
        waits = self._begun[c, k] < self._submitted[c, k]
        self._begin_bucket(c[waits], k[waits], thread[waits])
        c, k = c[~waits], k[~waits]
        self._lane_busy[c, k] = False
        held = self._phase[c, k, _TRAINING] == WAITING
        self._go_on(c[held], k[held])


def replay(tables: StepTables) -> StepTimes:
    """Return when everything of all steps happens."""
    return Replay(tables).run()
