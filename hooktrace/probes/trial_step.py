"""One hook's trials in a calibration: on which parts of which buckets, within its time.

a step      bucket --parts_of--> is there time? --PartOfBucket--> trial.py: the first call
the next    bucket --the same parts--> trial.py: the call that counts --> TrialRecord --> ring
"""

from __future__ import annotations

import logging
from collections import defaultdict
from concurrent.futures import Executor
from typing import Any, NamedTuple

import torch

from ..capture.buckets import BucketSlot
from ..records import TrialRecord
from .compare import lengths_of
from .local import random_state_kept
from .step_sampler import CallStart, Sink
from .trial import Candidate, PartOfBucket, TooLargeError, Trial, parts_of, run_trial

logger = logging.getLogger("hooktrace")

_WHOLE_SHARE = 0.7
"""Of a hook's time, for whole buckets; the rest is for parts of those that come later."""
_TRIAL_OVER_WORK = 2.0
"""Of the first call, which is the slower one: a trial is two calls, and its result is compared."""


class _Begun(NamedTuple):
    """A part of a bucket on which a hook has been called once."""

    first: int
    parameters: int
    state: Any


class StepOfTrials:
    """One hook's trials, on what is ready in one step of it, within ``budget_ns`` of host time.

    ``begin`` is called with the buckets of one step, ``finish`` with those of the next.
    ``worker``: as in ``run_trial``.
    """

    def __init__(
        self,
        candidate: Candidate,
        group: Any,
        budget_ns: int,
        refused: set[str],
        worker: Executor,
    ) -> None:
        self._candidate = candidate
        self._group = group
        self._budget_ns = budget_ns
        self._refused = refused
        self._worker = worker
        self.spent_ns = 0
        """Of the budget: what calls took, and those that are still to come are expected to."""
        self._sizes: set[int] = set()
        self._ns_per_byte = 0.0
        """Of the last trial: what the next one may take."""
        self._begun: defaultdict[BucketSlot, list[_Begun]] = defaultdict(list)

    def begin(self, start: CallStart, sink: Sink) -> None:
        """Call the hook on a bucket and on parts of it."""
        slot = start.slot
        lengths = lengths_of(slot.parameters)
        if sum(lengths) != slot.numel:  # complex gradients, which are two real ones each
            return
        for first, count in parts_of(lengths):
            part = _part(start, first, count)
            nbytes = part.nbytes
            if not self._has_time(nbytes, is_whole=count == len(lengths)):
                break
            state = self._candidate.working_state(self._group)
            began = sink.clock()
            trial = self._call(part, state, slot, counts=False)
            if trial is None:
                break
            self.spent_ns += 2 * (sink.clock() - began)
            self._sizes.add(nbytes)
            self._ns_per_byte = _TRIAL_OVER_WORK * trial.work_ns / nbytes
            self._begun[slot].append(_Begun(first, count, state))

    def finish(self, start: CallStart, sink: Sink) -> int:
        """Call it again, on the next step's gradients; returns how many trials were recorded."""
        made = 0
        for first, count, state in self._begun.pop(start.slot, ()):
            part = _part(start, first, count)
            trial = self._call(part, state, start.slot, counts=True)
            if trial is None:
                break
            sink.push(self._record(start, first, count, part, trial))
            made += 1
        return made

    def _has_time(self, nbytes: int, *, is_whole: bool) -> bool:
        """Return whether a trial may be made; the first one may, whatever it takes.

        Costs of other sizes can be told from two sizes only, so the second one may take longer.
        """
        share = _WHOLE_SHARE if is_whole else 1.0
        if len(self._sizes) < 2:
            share = 2.0
        expected_ns = self._ns_per_byte * nbytes
        return self.spent_ns + expected_ns <= share * self._budget_ns

    def _call(
        self, part: PartOfBucket, state: Any, slot: BucketSlot, *, counts: bool
    ) -> Trial | None:
        if self._candidate.label in self._refused:
            return None
        try:
            with random_state_kept(slot.device), torch.no_grad():
                return run_trial(self._candidate, state, part, self._worker, counts=counts)
        except TooLargeError:
            return None
        except Exception as error:
            self._refused.add(self._candidate.label)
            logger.warning(
                "hook %s is not tried on %s: %s: %s",
                self._candidate.label, slot.model.name, type(error).__name__, error,
            )  # fmt: skip
            return None

    def _record(
        self, start: CallStart, first: int, count: int, part: PartOfBucket, trial: Trial
    ) -> TrialRecord:
        slot = start.slot
        return TrialRecord(
            model=slot.model.name,
            generation=slot.generation,
            step=start.step,
            bucket=slot.index,
            first=first,
            count=count,
            hook=self._candidate.label,
            options=self._candidate.options,
            numel=part.numel,
            gradient_bytes=part.nbytes,
            **trial._asdict(),
        )


def _part(start: CallStart, first: int, count: int) -> PartOfBucket:
    """Return so many of a bucket's parameters, from ``first`` on, as a bucket."""
    lengths = lengths_of(start.slot.parameters)
    offset, numel = sum(lengths[:first]), sum(lengths[first : first + count])
    gradients = start.bucket.buffer().detach()[offset : offset + numel]
    return PartOfBucket(gradients, start.bucket.parameters()[first : first + count])
