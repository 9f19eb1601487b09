"""What the catalogue says of one hook, and how it is registered by that.  Torch is imported then.

HookEntry(model=ddp, state=..., tracer=...) --resolved, checked--> ddp.register_comm_hook
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

    from ..staging.hook import StagedHook
    from ..tracing.tracer import Tracer

Kind: TypeAlias = Literal["lossless", "cast", "quantised", "low-rank", "local"]
"""What a hook does to the gradients: averages them as they are; as 16-bit numbers; as bytes; as
products of thin matrices; or does not average over all ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEntry:
    """One standard hook.

    ``name``: on the command line.  ``hook_at`` and ``state_at`` say where hook and state's class
    are, as ``module:name`` in this package, so that the list is there without torch; without
    ``state_at`` the state is the process group.  ``state_options``: what the class is given.
    ``is_single_round``: whether the hook uses one collective a bucket.  ``check_options``: with
    which ``hooktrace check --standard`` makes the state, so that a hook that begins as a plain
    average does its own work within a few steps.
    """

    name: str
    hook_at: str
    kind: Kind
    what: str
    is_single_round: bool = True
    state_at: str | None = None
    state_options: Mapping[str, Any] = field(default_factory=dict)
    check_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def hook_name(self) -> str:
        """The hook's name in ``hooktrace.hooks``."""
        return self.hook_at.partition(":")[2]

    @property
    def hook(self) -> StagedHook:
        """The hook; the first use imports torch."""
        hook: StagedHook = _named(self.hook_at)
        return hook

    def make_state(self, process_group: Any = None, **options: Any) -> Any:
        """Return what to register the hook with, for a group (``None``: the default one)."""
        if self.state_at is None:
            return process_group
        make: Callable[..., Any] = _named(self.state_at)
        return make(process_group, **{**self.state_options, **options})

    def __call__(
        self, model: DistributedDataParallel, state: Any = None, tracer: Tracer | None = None
    ) -> None:
        """Register the hook; see ``register_ddp_comm_hook``."""
        from torch.distributed import ProcessGroup

        from ..tracing.trace import instrument

        if state is None or isinstance(state, ProcessGroup):
            state = self.make_state(state)
        if tracer is not None:
            instrument(model, self.hook, state, tracer=tracer)
            return
        self.hook.check_state(state)
        self.hook.check_model(model.module)
        model.register_comm_hook(state, self.hook)


def _named(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(f".{module}", __package__), name)
