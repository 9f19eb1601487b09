"""One unit's calls: hooks that run and are stamped, and collectives that raise.

comms.py, replicas.py --ShardedModel.begin--> UnitCall --Stamps.run, fail--> its model's step
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..staging.calls import BucketCall
from ..staging.driver import run_synchronously
from ..staging.units import ShardedModel, UnitInfo
from ..tracing.tracer import Tracer
from .hooks import GatherHook, Gathering, Reduction, ScatterHook
from .probe import OwnPart, Reference, UnitProbe


@dataclass(eq=False, slots=True)
class Stamps:
    """Stamps the calls of one unit; ``probe``: of its hooks, on sampled steps.

    ``end``: ends the tracing of the whole model.
    """

    model: ShardedModel
    unit: UnitInfo
    tracer: Tracer
    end: Callable[[], None]
    probe: UnitProbe | None = None

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

    def fail(self, call: BucketCall | None, stage: str, error: BaseException) -> None:
        """Take note that a collective raised: the step ends here, for whatever caught it."""
        if call is not None:
            call.failed(stage, error)
        self.model.miss()
        self.model.end_step()
