"""Optimizer overlap with ``ZeroRedundancyOptimizer``: checks around torch's own implementation.

torch's ``hook_with_zero_step`` does the work with the hook given here inside.  What it can only
find out in backward, or says in a way that does not help, is refused when the hook is made.  The
result is opaque: its call and its completion can be traced, not the stages inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ..driver import Hook, hook_name

if TYPE_CHECKING:
    from torch.distributed.optim import ZeroRedundancyOptimizer

__all__ = ["hook_with_zero_step", "hook_with_zero_step_interleaved"]


def hook_with_zero_step(
    hook: Hook,
    ddp: DistributedDataParallel,
    zero: ZeroRedundancyOptimizer,
    shard_buckets: bool = False,
) -> Hook:
    """Return a hook that runs ``hook``, and all optimizer steps after the last bucket's gradients.

    ``ddp``: the model that the hook will be registered on.  ``zero``: its optimizer, made with
    ``overlap_with_ddp=True`` and one parameter group.  ``shard_buckets``: let several ranks share
    the step of one bucket.  As torch's, it makes no step in the first two or three iterations,
    in which it learns DDP's buckets.  It does not pickle.

    Raises ``RuntimeError`` on a backend on which it may hang (gloo), ``ValueError`` for an
    optimizer made in another way, ``TypeError`` for what is no hook, no DDP model, no ZeRO
    optimizer, or for a hook that is traced: trace the result.
    """
    return _over_zero("hook_with_zero_step", hook, ddp, zero, shard_buckets)


def hook_with_zero_step_interleaved(
    hook: Hook,
    ddp: DistributedDataParallel,
    zero: ZeroRedundancyOptimizer,
    shard_buckets: bool = False,
) -> Hook:
    """Return a hook that runs ``hook`` and steps each bucket's parameters when it is done.

    As ``hook_with_zero_step``, which suits slow communication better; this suits slow computing.
    """
    return _over_zero("hook_with_zero_step_interleaved", hook, ddp, zero, shard_buckets)


def _over_zero(kind: str, hook: Hook, ddp: Any, zero: Any, shard_buckets: bool) -> Hook:
    # A second to import, and few need it.
    from torch.distributed.algorithms.ddp_comm_hooks import ddp_zero_hook
    from torch.distributed.optim import ZeroRedundancyOptimizer

    if not callable(hook):
        raise TypeError(f"{kind} needs a hook, not a {type(hook).__name__}; pass allreduce_hook")
    name = f"{kind}({hook_name(hook)})"
    if getattr(hook, "is_traced", False):
        raise TypeError(f"{name} was given a traced hook; trace the result: trace({kind}(...))")
    if not isinstance(ddp, DistributedDataParallel):
        raise TypeError(
            f"{name} needs the DistributedDataParallel model that it will be registered on, not a "
            f"{type(ddp).__name__}"
        )
    if not isinstance(zero, ZeroRedundancyOptimizer):
        raise TypeError(
            f"{name} needs a ZeroRedundancyOptimizer, not a {type(zero).__name__}; for an ordinary "
            "optimizer use hook_then_optimizer"
        )
    backend = dist.get_backend(ddp.process_group)
    if backend == dist.Backend.GLOO:
        raise RuntimeError(
            f"{name} cannot run on {backend}, where ZeRO's broadcasts may hang between DDP's "
            "collectives; use NCCL, or hook_then_optimizer with an ordinary optimizer"
        )
    if not zero._overlap_with_ddp:
        raise ValueError(f"{name}: make the ZeroRedundancyOptimizer with overlap_with_ddp=True")
    if len(zero.param_groups) != 1:
        raise ValueError(
            f"{name} steps one parameter group and the optimizer has {len(zero.param_groups)}; "
            "pass all parameters in one group"
        )
    made: Any = getattr(ddp_zero_hook, kind)(hook, ddp, zero, shard_buckets)
    made.__name__ = made.__qualname__ = name
    return made  # type: ignore[no-any-return]
