"""Stamps of one unit's collectives: calls that begin and end, for whatever runs between.

    comms.py, replicas.py --Stamps.begin--> BucketCall --run, fail--> the step of its model

What fails in a stamp is counted, while the collective goes on.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ..records.bucket import UnitCollective
from ..staging.calls import BucketCall
from ..staging.driver import run_synchronously
from ..staging.ring import Loss
from ..staging.slots import BucketSlot
from ..staging.units import ShardedModel, UnitInfo
from ..tracing.tracer import ALARMED, RECORDING, Tracer
from .hooks import GatherHook, Gathering, Reduction, ScatterHook
from .probe import OwnPart, Reference, UnitProbe


class Stamps:
    """Begins the calls of one unit; ``probe``: of its hooks, on sampled steps."""

    def __init__(
        self,
        model: ShardedModel,
        unit: UnitInfo,
        tracer: Tracer,
        probe: UnitProbe | None = None,
    ) -> None:
        self.model = model
        self.unit = unit
        self._tracer = tracer
        self.probe = probe
        self.clock = tracer.clock
        self.pool = tracer.event_pool

    @property
    def records(self) -> bool:
        """Whether the tracer records."""
        return self._tracer.state is RECORDING

    def begin(
        self,
        collective: UnitCollective,
        payload: torch.Tensor,
        group: dist.ProcessGroup | None,
        ready: int | None = None,
    ) -> BucketCall | None:
        """Return a call that begins now, or began at ``ready``; ``None`` where none is recorded.

        ``group``: ``None`` where nobody knows which one it is in.

        Raises ``AnomalyError`` where one was seen and is to end training.
        """
        tracer = self._tracer
        if tracer.state is ALARMED:
            tracer.raise_alarm()
        try:
            if not tracer.started and tracer.state is RECORDING:
                tracer.start()  # before the stamp: the collective has not begun
            ready = self.clock() if ready is None else ready
            if not self.model.takes(self.unit, collective):
                return None
            if tracer.state is not RECORDING:
                self.model.miss()
                return None
            return self.model.begin(self.unit, payload, ready, group)
        except Exception as error:  # of a clock, a device: this collective goes on untraced
            self.model.miss()
            tracer.push(Loss.of_stamps(error))
            return None

    def pass_over(self, collective: UnitCollective) -> None:
        """Count a call that is not recorded."""
        if self.model.takes(self.unit, collective):
            self.model.miss()

    def run(
        self,
        hook: ScatterHook | GatherHook,
        asked: Reduction | Gathering,
        into: torch.Tensor,
        call: BucketCall | None,
        look: Reference | OwnPart | None,
    ) -> None:
        """Run a hook, stamped on ``call``, and ``look`` at its result.  Raises ``HookError``."""
        try:
            steps = hook.steps(asked)  # type: ignore[arg-type]  # each is asked what it is for
            result = run_synchronously(hook.name, steps, hook, asked, call, into.numel())
        except BaseException:
            if look is not None:
                look.abandon()
            self.model.miss()
            self.model.end_step()
            raise
        if result is not into:
            into.copy_(result)
        if call is None:
            return
        call.finished()
        call.launched = call.done
        if call.events is None:
            call.exposed = call.done - call.ready
        if look is not None:
            try:
                look.compare(into)
            finally:
                call.release()
                if call.events is None and call.released is not None:
                    call.exposed = call.released - call.ready

    def expect(self, slot: BucketSlot, ready: int) -> None:
        """Have it known that FSDP is in a collective of its own, as in the last one of a slot."""
        call = self.model.expect(slot, ready)
        if slot.collective is not None:
            call.issued(slot.collective)

    def fail(self, call: BucketCall | None, stage: str, error: BaseException) -> None:
        """Take note that a collective raised: the step ends here, for whatever caught it."""
        if call is not None:
            call.failed(stage, error)
        self.model.miss()
        self.model.end_step()
