"""Accelerate: its keyword handler for DDP, with hooktrace's hooks, traced.

    Accelerator(kwargs_handlers=[DDPKwargs(comm_hook=...)]) --prepare(model)--> its DDP model
      --register_comm_hook--> instrument(ddp, the hook of that name, its state)
    accelerator.register_for_checkpointing(kwargs) --> the states of all ranks in one file

torch's hooks of these names hang or raise on gloo; hooktrace's run there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from accelerate.utils import DDPCommunicationHookType as Type
from accelerate.utils import DistributedDataParallelKwargs

from .. import hooks
from ..staging.hook import Hook
from ..tracing.trace import instrument
from ..tracing.tracer import Tracer
from .checkpoints import gathered, restore

_HOOKS: dict[Type, Any] = {
    Type.NO: None,
    Type.FP16: hooks.fp16_compress_hook,
    Type.BF16: hooks.bf16_compress_hook,
    Type.POWER_SGD: hooks.powerSGD_hook,
    Type.BATCHED_POWER_SGD: hooks.batched_powerSGD_hook,
}
_WRAPPERS: dict[Type, Callable[[Any], Any]] = {
    Type.NO: lambda hook: hook,
    Type.FP16: hooks.fp16_compress_wrapper,
    Type.BF16: hooks.bf16_compress_wrapper,
}


class DDPKwargs(DistributedDataParallelKwargs):
    """``DistributedDataParallelKwargs`` whose hooks are hooktrace's, traced.

    ``comm_hook``: of Accelerate's type, its value (``"power_sgd"``), or a hook of your own, which
    then gets ``comm_state``.  Without one the gradients are averaged as DDP does it, and traced.
    ``comm_wrapper``: a 16-bit cast around it; as in Accelerate nothing where there is no hook.
    ``comm_state_option``: of ``PowerSGDState``, one of which is made for each model: ``states``.
    ``tracer``: where records go, the default tracer by default.  The others are Accelerate's.

    Raises ``ValueError`` for a hook or a wrapper that it does not know.
    """

    # Accelerate compares what is in __dict__ with a handler of its own.
    __slots__ = ("_hook", "_own_state", "_tracer", "states")

    def __init__(
        self,
        *,
        comm_hook: Type | str | Hook = Type.NO,
        comm_wrapper: Type | str = Type.NO,
        comm_state_option: Mapping[str, Any] | None = None,
        comm_state: object = None,
        tracer: Tracer | None = None,
        **ddp: Any,
    ) -> None:
        wrapper = _type_of(comm_wrapper, _WRAPPERS, "comm_wrapper")
        self._tracer, self._own_state = tracer, comm_state
        self.states: list[Any] = []
        if callable(comm_hook):
            kind, hook = Type.NO, comm_hook
        else:
            kind = _type_of(comm_hook, _HOOKS, "comm_hook")
            hook = _HOOKS[kind]
        self._hook = hook and _WRAPPERS[wrapper](hook)
        super().__init__(
            comm_hook=kind,
            comm_wrapper=wrapper,
            comm_state_option=dict(comm_state_option or {}),
            **ddp,
        )

    @property  # type: ignore[misc]  # it can only be read
    def __class__(self) -> Any:
        """Accelerate's own class, by which it finds its handlers."""
        return DistributedDataParallelKwargs

    def register_comm_hook(self, model: Any) -> None:
        """Register the hook on a model; called by ``prepare``."""
        instrument(model, self._hook, self._make_state(), tracer=self._tracer)

    def _make_state(self) -> Any:
        if self.comm_hook in (Type.POWER_SGD, Type.BATCHED_POWER_SGD):
            self.states.append(hooks.PowerSGDState(None, **self.comm_state_option))
            return self.states[-1]
        if hasattr(self._own_state, "state_dict"):
            self.states.append(self._own_state)
        return self._own_state

    def state_dict(self) -> dict[str, Any]:
        """Return what all models' states remember; a collective, as ``save_state`` is."""
        return gathered(self.states)

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on with this rank's states; raises what ``restore`` raises."""
        restore(self.states, saved)


def _type_of(value: Any, known: Mapping[Type, Any], name: str) -> Type:
    names = [str(kind) for kind in known]
    if str(value) not in names:
        raise ValueError(f"{name}={value!r} is not known; pass {', '.join(names)}")
    return Type(str(value))
