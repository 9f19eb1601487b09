"""When a model is checked, and whether all of its ranks are there: buckets of DDP's, or units.

    every rank     at its begin: "I trace this model, and want these checks"
    takes(...) --> all_are_here(...)? --> the reference
                      |
    the job's store: who wants what, "I am there", why some rank has ended

A rank that does not come, since its tracer is paused, or something of it raised, says so, and
nobody waits for it; at the next probe all are asked again.  Nor does anybody wait where not all
ranks trace the model.  One that says nothing is waited for twice at most, in two steps: then the
probes end on all ranks, as they do where a tracer is closed.  A warning says why.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import torch.distributed as dist

from ..staging.groups import group_timeout
from ..staging.job import current_rank, first_word, job_store, rendezvous_store
from ..staging.ring import Loss
from ..staging.slots import ModelState
from .agreement import Consent
from .schedule import Schedule
from .step_sampler import Part

if TYPE_CHECKING:
    from ..tracing.tracer import Tracer

logger = logging.getLogger("hooktrace")

_TIMEOUT = timedelta(seconds=10)
"""For which ranks wait for one that does not say that it is there; at most a quarter of the process
group's own."""

_MOST_SILENT = 2
"""Steps one after another in which a rank did not come, and did not say why: with the second one
the probes end, so that a rank which never will is waited for no longer."""

_WHY = "why"
"""The key of why the probes have ended on some rank."""


class Ranks(NamedTuple):
    """The ranks of a group, by their numbers in the job, and how long one may wait for them."""

    numbers: tuple[int, ...]
    timeout: timedelta

    @classmethod
    def of(cls, group: dist.ProcessGroup) -> Ranks:
        """Return those of a process group."""
        numbers = tuple(dist.get_process_group_ranks(group))
        return cls(numbers, min(_TIMEOUT, group_timeout(group) / 4))


class ProbePlan(Part):
    """What is checked of one model: a bucket or unit in turn, or all, every ``error_every`` steps.

    ``key``: the same on all ranks for the same model and no other one.  ``wish``: what else this
    rank wants, in words that equal the other ranks' if they want the same.
    """

    def __init__(self, model: ModelState, key: str, tracer: Tracer, wish: str = "") -> None:
        every, all_buckets = tracer.error_every, tracer.error_all_buckets
        self.model = model
        self.sink = tracer
        self._schedule = Schedule.after(model.first_step, every, all_buckets)
        self._key = key
        self._over = self._is_told = False
        self._silent = 0
        """Steps with probes to which not all ranks came, since the last one to which they did."""
        self._silent_at = -1
        self._store: Any = None
        self._consents: dict[Ranks, Consent] = {}
        wish = (
            f"error_every={every}, error_all_buckets={all_buckets}, "
            f"first_step={model.first_step}{wish}"
        )
        self._wish = wish
        self._alike: set[Ranks] = set()
        """Those that were found to want the same."""
        # torch's store does not wait for a key that it sets.  Where it fails, nobody will wait.
        with suppress(Exception):
            job_store(key).set(_offer(current_rank()), wish)

    def takes(self, step: int, index: int, count: int) -> bool:
        """Return whether a bucket or unit, one of ``count``, is checked in a step."""
        return not self._over and self._schedule.takes(step, index, count)

    def all_are_here(self, step: int, index: int, ranks: Ranks, state: str) -> bool:
        """Return whether to issue a reference: all ranks are there, in one ``state``.

        Raises ``RuntimeError`` where the store does not answer: this rank cannot know then what the
        others do.
        """
        if self._over:
            return False
        if step == self._silent_at:  # once a step is long enough
            self.decline(step, index, ranks, "")
            return False
        try:
            alike = self._want_the_same(step, index, ranks)
            consent = self.consent(ranks)
            place, timeout = f"{step}/{index}", ranks.timeout
            if alike and consent.given(place, state, timeout, self._has_ended):
                self._silent = 0
                return True
        except Exception as error:
            raise RuntimeError(
                f"the job's store did not answer ({type(error).__name__}: {error}) while the ranks "
                f"agreed on a probe of {self.model.name}, so that nobody knows whether the others "
                "issue its collective; look at the process that has the store (rank 0, or its "
                "launcher), or pass Tracer(error_every=0)"
            ) from error
        if alike and consent.refusal:
            self._tell(step, consent.refusal)
        elif alike:
            self._miss_a_rank(step, timeout)
        return False

    def _want_the_same(self, step: int, index: int, ranks: Ranks) -> bool:
        """Return whether all ranks trace the model, and want the same of it."""
        if ranks in self._alike:
            return True
        store, numbers = self._connection(), ranks.numbers
        if not store.check([_offer(rank) for rank in numbers]):
            silent = [rank for rank in numbers if not store.check([_offer(rank)])]
            why = (
                f"rank(s) {', '.join(map(str, silent))} offer no checks of it; trace it on all "
                "ranks, from its first step on and with the same options, or pass "
                "Tracer(error_every=0)"
            )
            self._tell(step, why)
            if numbers[0] not in silent:  # which deletes the word
                self.decline(step, index, ranks, why)
            return False
        first = bytes(store.get(_offer(numbers[0]))).decode()
        if first != self._wish:
            self.end(
                f"the ranks want different checks, {first} on rank {numbers[0]} and {self._wish} "
                f"on rank {current_rank()}; give all the same"
            )
            return False
        self._alike.add(ranks)
        return True

    def _miss_a_rank(self, step: int, timeout: timedelta) -> None:
        why = (
            f"not all ranks came to the same place of step {step} within "
            f"{timeout.total_seconds():g} s; trace the same steps on all of them, with the same "
            "error_every"
        )
        if self._is_ended_elsewhere():
            self.end(why)
            return
        self._silent, self._silent_at = self._silent + 1, step
        self._tell(step, why, is_last=self._silent >= _MOST_SILENT)
        if self._silent >= _MOST_SILENT:
            self.end(why)

    def refuse(self, step: int, index: int, ranks: Ranks, why: str) -> None:
        """Have nobody issue a reference to which this rank does not come, and warn."""
        self._tell(step, why)
        self.decline(step, index, ranks, why)

    def decline(self, step: int, index: int, ranks: Ranks, why: str) -> None:
        """Do so without a warning of this rank's."""
        with suppress(Exception):  # of the store: the others wait until their timeout
            self.consent(ranks).refuse(f"{step}/{index}", why)

    def _is_ended_elsewhere(self) -> bool:
        with suppress(Exception):
            return self._has_ended()
        return False

    def _tell(self, step: int, why: str, *, is_last: bool = False) -> None:
        """Count that a probe did not take place, and warn once; of the last one ``end`` does."""
        self.sink.push(Loss("check_failed", why))
        if not (self._is_told or is_last):
            self._is_told = True
            logger.warning(
                "compression error of %s is not measured at step %d: %s; training goes on, and "
                "the ranks are asked again at the next sampled check",
                *(self.model.name, step, why),
            )

    def end(self, why: str) -> None:
        """Probe no more, and warn; of the job's first rank that has ended them it is said why."""
        if self._over:
            return
        self._over = True
        with suppress(Exception):  # of the store: the others wait until their timeout
            why = first_word(self._connection(), _WHY, why)
        logger.warning(
            "compression error of %s is no longer measured: %s; training goes on",
            *(self.model.name, why),
        )

    def leave(self) -> None:
        """Probe no more, and let the other ranks know before their next probe."""
        if not self._over:
            self._over = True
            # Said and not asked, since the store may be what hangs: a set key is not waited for.
            with suppress(Exception):
                job_store(self._key).set(_WHY, f"rank {current_rank()} has closed its tracer")

    def begin_in_child(self) -> None:
        """Probe no more: the store's connection is the parent's."""
        self._over, self._store = True, None
        self._consents.clear()

    def replan(self, first: int, number: int) -> bool:
        """Probe the ``number`` steps from ``first`` on, too."""
        self._schedule = replace(self._schedule, burst=range(first, first + number))
        return not self._over

    def consent(self, ranks: Ranks) -> Consent:
        """Return what ranks ask each other by."""
        if ranks not in self._consents:
            numbers = ranks.numbers
            self._consents[ranks] = Consent(
                self._connection(),
                f"at/{'-'.join(map(str, numbers))}",
                len(numbers),
                cleans=current_rank() == numbers[0],
            )
        return self._consents[ranks]

    def _has_ended(self) -> bool:
        return self._over or bool(self._connection().check([_WHY]))

    def _connection(self) -> Any:
        if self._store is None:
            self._store = rendezvous_store(self._key)
        return self._store


def _offer(rank: int) -> str:
    return f"offer/{rank}"
