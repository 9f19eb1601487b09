"""Which units of a sharded model are probed when, and whether all ranks of a group are there.

    takes(unit) --> prepare(group) --> the hook --> all_are_here(place)? --> the reference
                                                       |
    the job's store: "I am there, and have issued so many collectives"; why some rank has ended

The reference is a collective that training knows nothing of: every rank of the group issues it, or
none.  So nothing is left to counting steps (``probes/agreement.py``).  A rank that does not come,
since its tracer is paused, or something of it raised, says so, and nobody waits for it; at the next
probe all are asked again.  One that says nothing is waited for twice at most, in two steps: then
the probes end on all ranks, as they do where a tracer is closed.  A warning says why.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ..probes.agreement import Consent, key_of
from ..probes.device_group import trouble_with
from ..probes.schedule import Schedule
from ..probes.step_sampler import Part
from ..records import Scope
from ..staging.groups import collectives_issued, group_timeout
from ..staging.job import current_rank, first_word, job_store, rendezvous_store
from ..staging.slots import ModelState
from ..staging.units import UnitInfo

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


class ProbePlan(Part):
    """What is probed of one sharded model; ``units``: all of it.

    From step ``error_every`` on each such one: a unit in turn, or all of them.  A unit's calls come
    to its ``UnitProbe``.
    """

    def __init__(self, model: ModelState, units: Sequence[UnitInfo], tracer: Tracer) -> None:
        self.model = model
        self.scope: Scope = tracer.error
        self.sink: Tracer = tracer
        self._schedule = Schedule(0, tracer.error_every, tracer.error_all_buckets)
        self._units = len(units)
        self._over = self._is_told = False
        self._silent = 0
        """Steps with probes to which not all ranks came, since the last one to which they did."""
        self._silent_at = -1
        options = (tracer.error_every, tracer.error_all_buckets, self.scope, model.first_step)
        self._key = key_of("units", (model.hook, list(units), options))
        self._store: Any = None
        self._consents: dict[str, Consent] = {}

    def takes(self, unit: int) -> bool:
        """Return whether a unit's calls are probed in the step under way."""
        step = self.model.step
        is_on = not self._over and step > self.model.first_step
        return is_on and self._schedule.takes(step, unit, self._units)

    def prepare(self, group: dist.ProcessGroup, device: torch.device) -> None:
        """Make what the ranks of a group agree by.

        Raises ``RuntimeError`` where no reference can go over the group, and what torch raises.
        """
        trouble = None if device.type == "cpu" else trouble_with(group, device)
        if trouble is not None:
            raise RuntimeError(trouble)
        collectives_issued(group, device)
        self._consent(group)

    def all_are_here(self, unit: int, group: dist.ProcessGroup, device: torch.device) -> bool:
        """Return whether to issue a unit's reference; after ``prepare``.

        Raises ``RuntimeError`` where the store does not answer: this rank cannot know then what the
        others do, and training must not go on with collectives that may be paired wrongly.
        """
        if self._over:
            return False
        step = self.model.step
        place, issued = f"{step}/{unit}", collectives_issued(group, device)
        timeout = min(_TIMEOUT, group_timeout(group) / 4)
        if step == self._silent_at:  # once a step is long enough
            self._stop(unit, group, "")
            return False
        consent = self._consent(group)
        try:
            if consent.given(place, issued, timeout, self._has_ended):
                self._silent = 0
                return True
        except Exception as error:
            raise RuntimeError(
                f"the job's store did not answer ({type(error).__name__}: {error}) while the ranks "
                f"agreed on a probe of {self.model.name}, so that nobody knows whether the others "
                "issue its collective; look at the process that has the store (rank 0, or its "
                "launcher), or pass Tracer(error_every=0)"
            ) from error
        if consent.refusal:
            self._tell(consent.refusal)
            return False
        why = (
            f"not all ranks came to the same place of step {step} within "
            f"{timeout.total_seconds():g} s; trace the same steps on all of them, with the same "
            "error_every"
        )
        self._silent, self._silent_at = self._silent + 1, step
        if self._silent >= _MOST_SILENT or self._is_ended_elsewhere():
            self.end(why)
        else:
            self._tell(why)
        return False

    def refuse(self, unit: int, group: dist.ProcessGroup, why: str) -> None:
        """Have nobody issue a unit's reference, to which this rank does not come now."""
        self._tell(why)
        self._stop(unit, group, why)

    def _stop(self, unit: int, group: dist.ProcessGroup, why: str) -> None:
        with suppress(Exception):  # of the store: the others wait until their timeout
            self._consent(group).refuse(f"{self.model.step}/{unit}", why)

    def _is_ended_elsewhere(self) -> bool:
        with suppress(Exception):
            return self._has_ended()
        return False

    def _tell(self, why: str) -> None:
        """Warn once that a probe did not take place."""
        if not self._is_told:
            self._is_told = True
            logger.warning(
                "compression error of %s is not measured at step %d: %s; training goes on, and "
                "the ranks are asked again at the next probe",
                self.model.name,
                self.model.step,
                why,
            )

    def end(self, why: str) -> None:
        """Probe no more, and warn; of the job's first rank that has ended them it is said why."""
        if self._over:
            return
        self._over = True
        with suppress(Exception):  # of the store: the others wait until their timeout
            why = first_word(self._connection(), _WHY, why)
        what = "local" if self.scope == "local" else "compression"
        logger.warning(
            "%s error of %s is no longer measured: %s; training goes on", what, self.model.name, why
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

    def _has_ended(self) -> bool:
        return bool(self._connection().check([_WHY]))

    def _consent(self, group: dist.ProcessGroup) -> Consent:
        name = _name(group)
        if name not in self._consents:
            cleans = group.rank() == 0
            self._consents[name] = Consent(
                self._connection(), f"at/{name}", group.size(), cleans=cleans
            )
        return self._consents[name]

    def _connection(self) -> Any:
        if self._store is None:
            self._store = rendezvous_store(self._key)
        return self._store


def _name(group: dist.ProcessGroup) -> str:
    return "-".join(map(str, dist.get_process_group_ranks(group)))
