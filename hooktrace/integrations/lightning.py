"""Lightning: a callback that traces the DDP model of ``fit``.

    Trainer(strategy="ddp", callbacks=[Trace(hook)]) --on_train_start--> instrument(DDP model, hook)

The strategy's own hook arguments have no effect on a CPU; this has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from lightning.pytorch import Callback
from torch.nn.parallel import DistributedDataParallel

from ..staging.hook import Hook
from ..tracing.trace import instrument
from ..tracing.traced_hook import TracedHook
from ..tracing.tracer import Tracer, default_tracer
from .checkpoints import gathered, restore

logger = logging.getLogger("hooktrace")


class Trace(Callback):
    """Registers a traced hook on the DDP model when ``fit`` starts to train.

    ``hook``, ``state`` and ``local``: as for ``hooktrace.instrument``; without a hook gradients are
    averaged as DDP does it.  ``tracer``: the default tracer by default; or a function that makes
    one, which is called in each process, and so fits ``ddp_spawn`` too: a tracer is not pickled.
    Steps go on where a checkpoint stopped, and so does a state that has ``state_dict``.
    """

    def __init__(
        self,
        hook: Hook | None = None,
        state: Any = None,
        *,
        tracer: Tracer | Callable[[], Tracer] | None = None,
        local: bool = False,
    ) -> None:
        self._hook = hook
        self._state = state
        self._local = local
        self._given = tracer
        self._tracer: Tracer | None = None
        self.traced: TracedHook | None = None
        """The traced hook, during ``fit``."""

    def __getstate__(self) -> dict[str, Any]:
        given = None if isinstance(self._given, Tracer) else self._given
        return {**self.__dict__, "_given": given, "_tracer": None, "traced": None}

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Register the hook, now that a checkpoint has brought the step at which it begins."""
        model = trainer.strategy.model
        if not isinstance(model, DistributedDataParallel):
            _refuse(trainer)
            return
        self._tracer = self._make_tracer()
        self._tracer.first_step = trainer.global_step
        self.traced = instrument(
            model, self._hook, self._state, tracer=self._tracer, local=self._local,
            model=type(pl_module).__name__,
        )  # fmt: skip

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Have all exported before a process ends that runs no exit handlers."""
        if self._tracer is not None:
            mine = callable(self._given)
            self._tracer.close() if mine else self._tracer.flush()
        self._tracer = self.traced = None

    def state_dict(self) -> dict[str, Any]:
        """Return what the hook's state remembers, of all ranks; a collective, as saving is."""
        states = self._states()
        return gathered(states) if states else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with this rank's state; raises what ``restore`` raises."""
        if state_dict:
            restore(self._states(), state_dict)

    def _states(self) -> list[Any]:
        return [self._state] if hasattr(self._state, "state_dict") else []

    def _make_tracer(self) -> Tracer:
        if self._given is None:
            return default_tracer()
        return self._given if isinstance(self._given, Tracer) else self._given()


def _refuse(trainer: Any) -> None:
    strategy = type(trainer.strategy).__name__
    if trainer.world_size > 1:
        raise TypeError(
            f"{strategy} makes no DistributedDataParallel model, and hooktrace traces such a one's "
            "hook; pass Trainer(strategy='ddp'), or where fully_shard shards the model, as under "
            "ModelParallelStrategy, call hooktrace.fsdp.trace(self) in the module's on_fit_start"
        )
    logger.warning("%s of one process makes no DDP model: nothing is traced", strategy)
