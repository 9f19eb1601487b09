"""transformers' Trainer: a callback that traces its DDP model.

trace(trainer, hook) --on_train_begin--> instrument(trainer.model_wrapped, hook)
                     --on_log--> the run's numbers, by the trainer's own log
"""

from __future__ import annotations

import logging
import weakref
from typing import Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import TrainerCallback

from ..staging.hook import Hook
from ..tracing.trace import instrument
from ..tracing.traced_hook import TracedHook
from ..tracing.tracer import Tracer, default_tracer
from .trackers import numbers_of

logger = logging.getLogger("hooktrace")

_LOGGED_STEPS = 50
"""Of which the logged numbers are medians: more would take long to count."""

_FIRST_WAIT_S = 1.0
"""At most, for the steps before the first log; later logs have what is in memory by then."""


def trace(
    trainer: Any,
    hook: Hook | None = None,
    state: Any = None,
    *,
    tracer: Tracer | None = None,
    local: bool = False,
) -> TraceCallback:
    """Have ``trainer.train()`` trace its DDP model; returns the callback that does it.

    ``hook``, ``state`` and ``local``: as for ``hooktrace.instrument``; without a hook gradients are
    averaged as DDP does it.  ``tracer``: where records go, the default tracer by default.  Steps
    are the trainer's global steps, also where it resumes.  Where it logs a loss it logs the numbers
    of ``numbers_of`` too, of this rank's last steps.
    """
    callback = TraceCallback(trainer, hook, state, tracer, local)
    trainer.add_callback(callback)
    return callback


class TraceCallback(TrainerCallback):
    """Registers a traced hook on the model that each ``train()`` uses, if it has none yet."""

    def __init__(
        self, trainer: Any, hook: Hook | None, state: Any, tracer: Tracer | None, local: bool
    ) -> None:
        self._trainer = weakref.ref(trainer)
        self._hook = hook
        self._state = state
        self._local = local
        self._given = tracer
        self._tracer: Tracer | None = None
        self._model: Any = lambda: None
        self._logging = False
        self._waited = False
        self.traced: TracedHook | None = None
        """The traced hook of the last model."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Register the hook on a model that is new."""
        trainer: Any = self._trainer()
        model = trainer.model_wrapped
        if model is self._model():
            return
        if not isinstance(model, DistributedDataParallel):
            _refuse(model, args)
            return
        tracer = self._tracer = self._given or default_tracer()
        tracer.first_step = state.global_step
        self.traced = instrument(
            model, self._hook, self._state, tracer=tracer, local=self._local,
            model=type(model.module).__name__,
        )  # fmt: skip
        self._model = weakref.ref(model)
        self._waited = False

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Log the run's numbers where the trainer logs a loss."""
        trainer: Any = self._trainer()
        traced, tracer = self.traced, self._tracer
        if self._logging or traced is None or tracer is None or "loss" not in (logs or {}):
            return
        if not self._waited:
            # A short training is over before the export thread's first turn.
            self._waited = True
            tracer.flush(_FIRST_WAIT_S)
        self._logging = True
        try:
            for summary in tracer.summary(last=_LOGGED_STEPS, wait=False):
                if summary.model == traced.model:
                    trainer.log(numbers_of(summary))
        finally:
            self._logging = False
            tracer.flush(0.0)


def _refuse(model: Any, args: Any) -> None:
    if args.world_size > 1:
        raise TypeError(
            f"the Trainer trains a {type(model).__name__}, and hooktrace traces "
            "DistributedDataParallel; leave out deepspeed, or where fsdp_config=dict(version=2) "
            "shards the model have a callback of your own call "
            "hooktrace.fsdp.trace(trainer.model_wrapped) in on_train_begin"
        )
    if dist.is_initialized() and dist.get_world_size() > 1:
        logger.warning(
            "the Trainer takes itself for one process and makes no DDP model, so that nothing is "
            "traced; on a CPU pass TrainingArguments(use_cpu=True)"
        )
    else:
        logger.warning("a Trainer of one process makes no DDP model: nothing is traced")
