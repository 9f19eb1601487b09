"""Models of a job that is tuned, found as they are made, or called for the first time.

    DDP made --made--> Turns --patch_forward--> told of each forward pass
    root of FSDP2 settled, in its first call --called--> Turns, told of each call from that one on
    an optimizer steps, and no model was found --refuse_others--> the job ends: nothing can be tuned
    DDP's join() is entered: the job ends too, since ranks there do not make the same steps

A model that a part of the ranks share is none: the others do not come to where its turns end.
"""

from __future__ import annotations

import functools
import weakref
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from .hooks import DDPTurns, ShardedTurns
from .plan import Plan, plan
from .turns import Turns

if TYPE_CHECKING:
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

REFUSED = "-refused.txt"
"""Of a file, behind the plan's ``where``: why the job cannot be tuned."""
_STEPS = 100
"""Of optimizers, without a model; some train a part by itself before they make it."""

_turns: weakref.WeakKeyDictionary[Any, DDPTurns] = weakref.WeakKeyDictionary()
"""By reducer: on the model itself they would go into its copies and checkpoints."""
_called: weakref.WeakSet[nn.Module] = weakref.WeakSet()
"""Sharded models that were called."""


def made(ddp: DistributedDataParallel) -> DDPTurns | None:
    """Take note of a model that was just made; return its turns where its hooks take some."""
    wanted = _wanted(ddp.module, ddp.process_group.size())
    if wanted is None:
        return None
    name, cap = type(ddp.module).__name__, ddp.bucket_bytes_cap / 2**20
    found = _turns[ddp.reducer] = DDPTurns(ddp.module, wanted, kind="DDP", model=name, cap=cap)
    return None if wanted.shapes is None else found


def _wanted(module: nn.Module, ranks: int) -> Plan | None:
    import torch.distributed as dist

    wanted = plan()
    is_of = wanted is not None and wanted.is_of(module) and ranks == dist.get_world_size()
    return wanted if is_of else None


def patch_forward(ddp: Any) -> None:
    """Have models that take turns told of each forward pass."""
    import torch

    original = ddp.forward

    @functools.wraps(original)
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

    ddp.forward = forward


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
    wanted = _wanted(model, min((one.ranks for one in groups), default=0))
    if wanted is None:
        return
    name = name_of(model)
    turns = ShardedTurns(model, wanted, kind="fully_shard", model=name, cap=None)
    if wanted.shapes is not None:
        turns.take(model, name)

    def step(*_: Any) -> None:
        if torch.is_grad_enabled() and groups[0].reduces:
            turns.step()

    model.register_forward_pre_hook(step, prepend=True)
    step()


def refuse_others(optimizers: ModuleType) -> None:
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
    wanted = plan()
    if wanted is not None:
        Path(f"{wanted.where}{REFUSED}").write_text(why, "utf-8")
    raise SystemExit(0)
