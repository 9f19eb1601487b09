"""ZeRO overlap: torch's ``ZeroRedundancyOptimizer`` steps while gradients are still communicated.

    hook's steps --> bucket's own buffer --> torch's ddp_zero_hook --> its rank's parameters stepped
                                                                   --> broadcast to the others

The work is torch's.  What is added: it is refused here, before anything is registered, where it
would fail or hang in backward, and the inner hook may return its result in a tensor of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ..staging.composition import Hook, composed, hook_name
from ..staging.driver import Steps
from ..staging.groups import group_info
from .optimizer import averaged_in_place

if TYPE_CHECKING:
    from torch.distributed.optim import ZeroRedundancyOptimizer

Future = Any  # torch.futures.Future or torch._C.Future: `then` returns the latter


def hook_with_zero_step(
    hook: Hook,
    ddp: DistributedDataParallel,
    zero: ZeroRedundancyOptimizer,
    shard_buckets: bool = False,
) -> Callable[..., Future]:
    """Return a hook that runs ``hook``, and after the last bucket the optimizer's step.

    The step begins when the last bucket's hook is called, and overlaps with communication that is
    still under way.  ``hook``: any hook, staged or opaque.  ``zero``: made of ``ddp``'s parameters
    with ``overlap_with_ddp=True``.  ``shard_buckets``: share out the parts of one bucket among
    ranks, not whole buckets.  Do not call ``zero.step()``; as torch says, the first two backward
    passes (three with ``static_graph=True``) step nothing.

    The hook returned is opaque: a tracer sees the whole of each call, not the stages inside.  It is
    torch's closure and does not pickle.  Tested with one rank on torch's fake backend only: gloo
    is refused, and nothing else was there.

    Raises ``RuntimeError`` where the process group of the model or of ``zero`` is gloo's, on which
    torch found that it may hang; ``TypeError`` for a ``ddp`` that is no DDP model, a ``zero`` of
    another kind, what is no hook, and a hook that is traced already; ``ValueError`` for a ``zero``
    made without ``overlap_with_ddp=True`` or with several parameter groups, and for parameters
    that are not contiguous (``channels_last``), whose gradients torch would mix up, and for a
    process group whose ranks are not the first of all, as torch takes one number for the other.
    """
    return _with_zero_step("hook_with_zero_step", hook, ddp, zero, shard_buckets)


def hook_with_zero_step_interleaved(
    hook: Hook,
    ddp: DistributedDataParallel,
    zero: ZeroRedundancyOptimizer,
    shard_buckets: bool = False,
) -> Callable[..., Future]:
    """Return a hook that runs ``hook`` and then the part of the step that concerns the bucket.

    As ``hook_with_zero_step``, but each bucket is stepped and broadcast when its gradients are
    there, so that this overlaps with the backward computation too.
    """
    return _with_zero_step("hook_with_zero_step_interleaved", hook, ddp, zero, shard_buckets)


def _with_zero_step(
    factory_name: str,
    hook: Hook,
    ddp: DistributedDataParallel,
    zero: ZeroRedundancyOptimizer,
    shard_buckets: bool,
) -> Callable[..., Future]:
    from torch.distributed.algorithms.ddp_comm_hooks import ddp_zero_hook

    factory = getattr(ddp_zero_hook, factory_name)
    name = f"{factory_name}({hook_name(hook)})"

    def in_place(state: Any, bucket: Any) -> Steps:
        return (yield from averaged_in_place(hook, state, bucket))

    inner = composed(in_place, hook, name=name, made_by=(factory, (hook, ddp, zero, shard_buckets)))
    _check(name, ddp, zero)
    made: Callable[..., Future] = factory(inner, ddp, zero, shard_buckets)
    made.__name__ = made.__qualname__ = name
    return made


def _check(name: str, ddp: Any, zero: Any) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    if not isinstance(ddp, DistributedDataParallel):
        raise TypeError(
            f"{name} needs a DistributedDataParallel model, not a {type(ddp).__name__}; "
            "pass the model that the hook will be registered on"
        )
    if not isinstance(zero, ZeroRedundancyOptimizer):
        raise TypeError(
            f"{name} needs a ZeroRedundancyOptimizer, not a {type(zero).__name__}; for another "
            "optimizer use hook_then_optimizer"
        )
    if not zero._overlap_with_ddp:
        raise ValueError(
            f"{name} needs an optimizer that leaves its step to the hook; make the "
            "ZeroRedundancyOptimizer with overlap_with_ddp=True"
        )
    if len(zero.param_groups) != 1:
        raise ValueError(
            f"{name} takes one parameter group, and the ZeroRedundancyOptimizer has "
            f"{len(zero.param_groups)}; make it of ddp.parameters(), or call its step() after "
            "backward"
        )
    for parameter in zero.param_groups[0]["params"]:
        if not parameter.is_contiguous():
            raise ValueError(
                f"{name} takes contiguous parameters, and one of shape {tuple(parameter.shape)} "
                "is not; use hook_then_optimizer, or memory_format=torch.contiguous_format"
            )
    ranks = dist.get_process_group_ranks(zero.process_group)
    if ranks != list(range(len(ranks))):
        raise ValueError(
            f"{name} takes a process group of ranks 0, 1, ... in order, and that of the "
            f"ZeroRedundancyOptimizer has {ranks}, on which torch steps the wrong parameters or "
            "none; use hook_then_optimizer"
        )
    device = next(ddp.parameters()).device.type
    for group in (ddp.process_group, zero.process_group):
        if group_info(group, device).backend == "gloo":
            raise RuntimeError(
                f"{name} may hang on the gloo backend (torch refuses it too); use NCCL, "
                "hook_then_optimizer, or a ZeroRedundancyOptimizer without overlap_with_ddp whose "
                "step() is called after backward"
            )
