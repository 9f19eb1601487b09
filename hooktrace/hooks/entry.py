"""What the catalogue says of one hook, and how it is registered by that.

HookEntry(model=ddp, state=..., tracer=...) --checked--> ddp.register_comm_hook
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ..staging.hook import StagedHook
from ..tracing.traced_hook import instrument

if TYPE_CHECKING:
    from ..tracing.tracer import Tracer

__all__ = ["HookEntry", "Kind"]

Kind: TypeAlias = Literal["lossless", "cast", "quantised", "low-rank", "local"]
"""What a hook does to the gradients: averages them as they are; as 16-bit numbers; as bytes; as
products of thin matrices; or does not average over all ranks."""


def _the_group(process_group: dist.ProcessGroup | None) -> dist.ProcessGroup | None:
    return process_group


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEntry:
    """One standard hook.

    ``name``: on the command line.  ``make_state``: takes a process group (``None`` for the default
    one), and options where the state has any, and returns what to register the hook with.
    ``check_options``: with which ``hooktrace check --standard`` makes the state, so that a hook
    that begins as a plain average does its own work within a few steps.
    """

    name: str
    hook: StagedHook
    kind: Kind
    what: str
    make_state: Callable[..., Any] = _the_group
    check_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_single_round(self) -> bool:
        """Whether the hook uses one collective a bucket."""
        return self.hook.multi_round is False

    def __call__(
        self, model: DistributedDataParallel, state: Any = None, tracer: Tracer | None = None
    ) -> None:
        """Register the hook; see ``register_ddp_comm_hook``."""
        if state is None or isinstance(state, dist.ProcessGroup):
            state = self.make_state(state)
        if tracer is not None:
            instrument(model, self.hook, state, tracer=tracer)
            return
        self.hook.check_state(state)
        self.hook.check_model(model.module)
        model.register_comm_hook(state, self.hook)
