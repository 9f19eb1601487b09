"""Models of a job that is tuned, found as they are made, or called for the first time.

    DDP made --made--> Turns --_stepping--> told of each forward pass
    root of FSDP2 settled, in its first call --called--> Turns, told of each call from that one on
    an optimizer steps, no model was found --_refuse_others--> the job ends: nothing can be tuned
    DDP's join() is entered: the job ends too, since ranks there do not make the same steps

A model that a part of the ranks share is none: the others do not come to where its turns end.
"""

from __future__ import annotations

import os
import weakref
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from .. import patches
from .hooks import DDPTurns, ShardedTurns
from .plan import plan
from .turns import Turns, write

if TYPE_CHECKING:
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

_STEPS = 100
"""Of optimizers, without a model; some train a part by itself before they make it."""

_turns: weakref.WeakKeyDictionary[Any, DDPTurns] = weakref.WeakKeyDictionary()
"""By reducer: on the model itself they would go into its copies and checkpoints."""
_called: weakref.WeakSet[nn.Module] = weakref.WeakSet()
"""Sharded models that were called."""


def _patch_ddp(module: ModuleType) -> None:
    """Have models made with the plan's limit of bucket sizes, and told of each forward pass."""
    from ...tracing import export

    ddp = module.DistributedDataParallel
    export.is_measured = True
    patches.make_with_cap(ddp, cap_of)
    patches.replace(ddp, "forward", _stepping)
    patches.when_made(ddp, made)


def _patch_fsdp(module: ModuleType) -> None:
    """Have sharded models found when they are called first."""
    from ..sharded import watch

    watch(module, called)


def cap_of(module: nn.Module) -> float | None:
    """Return the limit of bucket sizes that is asked for, of the model that is made next."""
    wanted = plan()
    return wanted.cap if wanted.model == len(Turns.sizes) else None


def made(ddp: DistributedDataParallel) -> None:
    """Take note of a model that was just made; without hooks that take turns it stays as it is."""
    if not _is_of_all(ddp.process_group.size()):
        return
    name, cap = type(ddp.module).__name__, ddp.bucket_bytes_cap / 2**20
    turns = DDPTurns(ddp.module, plan(), kind="DDP", model=name, cap=cap)
    if turns.is_asked:
        _turns[ddp.reducer] = turns
    if turns.is_tuned:
        from ..models import know

        know(ddp, turns)


def _is_of_all(ranks: int) -> bool:
    import torch.distributed as dist

    return ranks == dist.get_world_size()


def _stepping(original: Any) -> Any:
    import torch

    def forward(self: Any, *inputs: Any, **options: Any) -> Any:
        turns = _turns.get(self.reducer)
        if turns is None or not (torch.is_grad_enabled() and self.require_backward_grad_sync):
            return original(self, *inputs, **options)
        if self._join_config.enable:
            _refuse(
                "the job trains within DDP.join(), where ranks need not make the same steps, and "
                "hooks can take turns only at the same step of all ranks; give all ranks as many "
                "batches, and tune it without join(), or with join(enable=False)"
            )
        turns.step()
        turns.is_called = True
        try:
            return original(self, *inputs, **options)
        finally:
            turns.is_called = False

    return forward


def called(root: nn.Module) -> None:
    """Take note of a sharded model, a root of which is called for the first time."""
    import torch

    from ...fsdp.torch_groups import groups_of
    from ..sharded import name_of, outermost

    model = outermost(root)
    if model in _called:  # each of its units is a root
        return
    _called.add(model)
    groups = list(groups_of(model))
    if not _is_of_all(min((one.ranks for one in groups), default=0)):
        return
    name = name_of(model)
    turns = ShardedTurns(model, plan(), kind="fully_shard", model=name, cap=None)
    if not turns.is_asked:
        return
    if turns.is_tuned:
        turns.take(model, name)

    def step(*_: Any) -> None:
        if torch.is_grad_enabled() and groups[0].reduces:
            turns.step()

    model.register_forward_pre_hook(step, prepend=True)
    step()


def _refuse_others(optimizers: ModuleType) -> None:
    """End a job that trains without a model that can be tuned; ``optimizers``: torch's module."""
    steps = 0

    def stepped(*_: Any) -> None:
        nonlocal steps
        steps += 1
        if Turns.sizes:
            handle.remove()
        elif steps == _STEPS:
            _refuse(
                "the job trains, and no model of it is under DDP, or under fully_shard, on all of "
                "its ranks, so there is no hook to tune; pass a command that trains one"
            )

    handle = optimizers.register_optimizer_step_post_hook(stepped)


def _refuse(why: str) -> NoReturn:
    """End a job that cannot be tuned."""
    write(plan(), f"refused-{os.getpid()}", {"why_not": why})
    raise SystemExit(0)


PATCHES = {
    patches.DDP: _patch_ddp,
    patches.FSDP: _patch_fsdp,
    "torch.optim.optimizer": _refuse_others,
}
"""What is done to torch's modules, once they are imported."""
