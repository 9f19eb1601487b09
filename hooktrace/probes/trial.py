"""One hook, tried on a part of a bucket: what its work takes, what it would send, what it loses.

    gradients --copy--> PartOfBucket --> the hook's generator --yield--> Operation.echo()
                                                ^                            |
                                                +-- as from all the ranks ---+
    a stop-watch runs while the hook does --> TrialRound: before_ns, and what would be sent

Nothing is sent, and the gradients are not touched.  What follows a collective is done as in
training: on another thread than what comes before it, which has slept for as long as the smallest
collective takes.  Its core has neither the hook's code nor its data in its caches (of 1 MB of
PowerSGD's matrices the work between its rounds takes 2.4 times as long then as at once, and that
after them 1.4 times; in training 2.4 and 1.7).  Each trial is two calls, a step apart, and the
second one counts: a state that remembers (error feedback, a warm start) has something to remember
then, and what the hook reads and writes has left the caches as it does in training.  (Called twice
in a row, 16.8 MB of gradients take fp16 1.9 and 1.0 ms before and after its all-reduce; in a step,
and a step apart, 3.1 and 2.0.)

The stop-watch is a thread's processor time: other ranks on the same cores, and this one's own
collectives, are at work meanwhile.  Where torch works on several threads (``OMP_NUM_THREADS``),
this one does its part as long as the others do theirs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple, Protocol

import torch

from ..capture.flat_bucket import FlatBucket
from ..records import Options, TrialRound
from ..staging.driver import Steps, run_answered
from ..staging.operation import Operation
from .compare import coarse_error

PARTS = (1 / 16, 1 / 4)
"""Shares of a bucket that are tried beside the whole of it."""

_LEAST_NUMEL = 1 << 12
"""Of a part: what smaller ones take is what any call takes."""

_MOST_GATHERED = 1 << 28
"""Bytes that a trial may gather: on many ranks a hook is tried on a part only."""

_LEAST_COLLECTIVE_S = 0.0004
"""What gloo takes for an all-reduce of a few bytes between two ranks of one machine."""


class Candidate(Protocol):
    """A hook that can be tried."""

    label: str

    @property
    def options(self) -> Options:
        """What it was made with."""

    def fits(self, dtype: torch.dtype) -> bool:
        """Return whether it takes gradients of a dtype."""

    def working_state(self, process_group: Any) -> Any:
        """Return a state of which the next call is normal work."""

    def steps(self, state: Any, bucket: Any) -> Steps:
        """Return the hook's generator for a bucket."""


class TooLargeError(Exception):
    """What the hook would gather is too much to make for a trial."""


class PartOfBucket(FlatBucket):
    """Some of a bucket's parameters, with a copy of their gradients, as a bucket of its own.

    ``gradients``: theirs, flat; ``fill`` copies them.  It is the first bucket of a model, and not
    the last one: no state counts a step.
    """

    def __init__(self, gradients: torch.Tensor, parameters: list[torch.Tensor]) -> None:
        super().__init__(parameters, torch.empty_like(gradients), 0, False)
        self._gradients = gradients

    def fill(self) -> None:
        """Take the gradients, as DDP does before it calls the hook."""
        self._buffer.copy_(self._gradients)

    @property
    def numel(self) -> int:
        """How many gradients there are."""
        return self._gradients.numel()

    @property
    def nbytes(self) -> int:
        """How many bytes they are."""
        return self._gradients.nbytes


class Trial(NamedTuple):
    """What a trial brought; durations are processor time, ns."""

    rounds: tuple[TrialRound, ...]
    after_ns: int
    copy_ns: int
    relative_l2: float | None
    cosine: float | None
    reference_l2: float | None

    @property
    def work_ns(self) -> int:
        """All that the hook does, and the copy before it."""
        return self.copy_ns + sum(one.before_ns for one in self.rounds) + self.after_ns


class _StopWatch:
    """Runs while the hook works, and stands while an operation is answered.

    ``worker``: runs what follows the first operation.
    """

    def __init__(self, clock: Callable[[], int], worker: Executor) -> None:
        self._clock = clock
        self._worker = worker
        self.rounds: list[TrialRound] = []
        self.lap_ns = 0
        """Of the work since the last operation was answered."""

    def watch(self, steps: Steps) -> Steps:
        """Advance a hook's generator, each stretch on the thread that has it in training."""
        try:
            operation = self._stretch(steps, None)
            while True:
                value = yield operation
                operation = self._worker.submit(self._callback, steps, value).result()
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # of a generator of tensors

    def _stretch(self, steps: Steps, value: Any) -> Operation:
        began = self._clock()
        try:
            return steps.send(value)
        finally:
            self.lap_ns = self._clock() - began

    def _callback(self, steps: Steps, value: Any) -> Operation:
        time.sleep(_LEAST_COLLECTIVE_S)
        with torch.no_grad():
            return self._stretch(steps, value)

    def answer(self, operation: Operation) -> Any:
        """Answer as if all ranks had given the same; raises ``TypeError`` where that is unknown."""
        known = operation.describe()
        if known is None:
            raise TypeError(f"what {operation!r} sends is not known")
        if known.kind == "all_gather" and known.wire_bytes * known.group.size > _MOST_GATHERED:
            raise TooLargeError
        self.rounds.append(
            TrialRound(
                before_ns=self.lap_ns,
                collective=known.kind,
                wire_bytes=known.wire_bytes,
                dtype=str(known.dtype).removeprefix("torch."),
            )
        )
        return operation.echo()


def run_trial(
    candidate: Candidate,
    state: Any,
    part: PartOfBucket,
    worker: Executor,
    clock: Callable[[], int] = time.thread_time_ns,
    *,
    counts: bool = True,
) -> Trial:
    """Call a hook on a part of a bucket; without ``counts`` the result is not compared.

    ``worker``: one thread, the same one in all calls, so that what a thread does only once is not
    in those that count.  Raises what the hook raises, ``TypeError`` where what it sends is not
    known, and ``TooLargeError``.
    """
    start = clock()
    part.fill()
    copy_ns = clock() - start
    watch = _StopWatch(clock, worker)
    steps = watch.watch(candidate.steps(state, part))
    result = run_answered(candidate.label, steps, part, watch.answer)
    error = coarse_error(result.flatten(), part._gradients) if counts else (None, None, None)
    return Trial(tuple(watch.rounds), watch.lap_ns, copy_ns, *error)


def parts_of(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Return which runs of a bucket's parameters are tried: (first, count), smaller ones first.

    ``lengths``: elements of each parameter.  The last one is the whole bucket; of the ``PARTS``
    those come before it that parameters add up to, roughly.
    """
    whole = sum(lengths)
    found: list[tuple[int, int]] = []
    numel = 0
    for share in PARTS:
        part, target = _run_near(lengths, whole * share), whole * share
        own = sum(lengths[part[0] : sum(part)])
        if own >= max(_LEAST_NUMEL, 2 * numel) and target / 2 <= own <= 2 * target:
            found.append(part)
            numel = own
    return [*found, (0, len(lengths))]


def _run_near(lengths: Sequence[int], target: float) -> tuple[int, int]:
    """Return the run of neighbours, (first, count), whose sum is nearest to a target."""
    best, found, first, total = math.inf, (0, len(lengths)), 0, 0
    for last, length in enumerate(lengths):
        total += length
        while total > target and first < last and total - lengths[first] >= target:
            total -= lengths[first]
            first += 1
        for start, own in ((first, total), (first + 1, total - lengths[first])):
            if start <= last and abs(own - target) < best:
                best, found = abs(own - target), (start, last + 1 - start)
    return found
