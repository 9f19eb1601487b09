"""One hook's trials in one step of a calibration: on which parts of which buckets, within its time.

bucket --parts_of--> is there time? --PartOfBucket--> trial.py --Trial--> TrialRecord --> ring
"""

from __future__ import annotations

import logging
from typing import Any

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
_TRIAL_OVER_WORK = 2.5
"""A trial is made twice, its result is compared, and other threads want the same cores."""


class StepOfTrials:
    """One hook's trials in one step, on what is ready of it, within ``budget_ns`` of host time."""

    def __init__(self, candidate: Candidate, group: Any, budget_ns: int, refused: set[str]) -> None:
        self._candidate = candidate
        self._group = group
        self._budget_ns = budget_ns
        self._refused = refused
        self.spent_ns = 0
        self._sizes: set[int] = set()
        self._ns_per_byte = 0.0
        """Of the last trial: what the next one may take."""

    def bucket(self, start: CallStart, sink: Sink) -> int:
        """Try the hook on a bucket and on parts of it; returns how many trials were made."""
        slot, made = start.slot, 0
        lengths = lengths_of(slot.parameters)
        if sum(lengths) != slot.numel:  # complex gradients, which are two real ones each
            return 0
        flat = start.bucket.buffer().detach()
        with random_state_kept(slot.device), torch.no_grad():
            for first, count in parts_of(lengths):
                offset, numel = sum(lengths[:first]), sum(lengths[first : first + count])
                own = flat[offset : offset + numel]
                if not self._has_time(own.nbytes, is_whole=count == len(lengths)):
                    break
                parameters = start.bucket.parameters()[first : first + count]
                began = sink.clock()
                trial = self._trial(PartOfBucket(own, parameters), slot)
                if trial is None:
                    break
                self.spent_ns += sink.clock() - began
                self._sizes.add(own.nbytes)
                self._ns_per_byte = _TRIAL_OVER_WORK * trial.work_ns / own.nbytes
                sink.push(self._record(start, first, count, own, trial))
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

    def _trial(self, part: PartOfBucket, slot: BucketSlot) -> Trial | None:
        if self._candidate.label in self._refused:
            return None
        try:
            return run_trial(self._candidate, self._group, part)
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
        self, start: CallStart, first: int, count: int, own: torch.Tensor, trial: Trial
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
            numel=own.numel(),
            gradient_bytes=own.nbytes,
            **trial._asdict(),
        )
