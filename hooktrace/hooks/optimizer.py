"""Optimizer overlap: the parameters of a bucket are stepped as soon as their gradients are there.

    hook's steps --> averaged gradients --> bucket's own buffer --> optimizer step --> DDP

The step (optimizer_state.py) runs in the callback of the bucket's last collective, while backward
goes on with the layers before.  Counterpart of torch's private ``_hook_then_optimizer``; unlike
there it steps with what the hook returned, also where that is another tensor than the buffer.
"""

from __future__ import annotations

from typing import Any

import torch

from ..staging.compiled import ParameterBucket
from ..staging.composition import Hook, composed, hook_name, steps_of
from ..staging.driver import Steps
from ..staging.hook import StagedHook
from .optimizer_state import OptimizerHookState


def hook_then_optimizer(hook: Hook, optimizer_state: OptimizerHookState) -> StagedHook:
    """Return a hook that runs ``hook`` and then steps the bucket's parameters.

    ``hook``: any hook, staged or opaque; its state is the one that is registered.
    ``optimizer_state``: what to step with, for one model::

        state = OptimizerHookState.of(torch.optim.AdamW, ddp.parameters(), lr=1e-3)
        ddp.register_comm_hook(None, hook_then_optimizer(fp16_compress_hook, state))
        for batch in batches:
            ddp.zero_grad()
            loss(ddp(batch)).backward()  # also the optimizer's step

    Parameters get the same bits as from ``hook`` and ``optimizer.step()`` after backward.  The step
    is part of the bucket's last stage, ``decompress``.

    After backward ``grad`` holds the averaged gradients, as ever.  They have been applied: do not
    call an optimizer's ``step()`` for these parameters too, and clear them before the next pass.
    What needs all gradients before the step (clipping by total norm, a ``GradScaler``) cannot be
    had.  Nor can a step be undone: when backward raises, some parameters have been stepped.

    A pass under ``no_sync`` calls no hook and makes no step; the next pass outside steps with the
    sum.  Under ``join()`` a rank without data steps along with the others.  A parameter without
    a gradient in this pass (``find_unused_parameters``) is stepped with zeros, so weight decay and
    momentum move it, where ``optimizer.step()`` after backward skips one that no rank used.
    A parameter whose value backward still needs after its gradient is complete (because it is used
    detached as well, say) fails with torch's error of an in-place modification.

    Pickles if ``hook`` and ``optimizer_state`` do.

    Raises ``TypeError`` for what is no hook, a traced hook, and another kind of optimizer state.
    Sparse gradients and the compiled python reducer are refused with a ``TypeError`` when a bucket
    comes.
    """
    name = f"hook_then_optimizer({hook_name(hook)})"
    if not isinstance(optimizer_state, OptimizerHookState):
        raise TypeError(
            f"{name} needs an OptimizerHookState, not a {type(optimizer_state).__name__}; pass "
            "OptimizerHookState.of(torch.optim.SGD, ddp.parameters(), lr=0.1)"
        )

    def then_step(state: Any, bucket: Any) -> Steps:
        buffer = yield from averaged_in_place(hook, state, bucket)
        optimizer_state.step(bucket)
        return buffer

    made_by = (hook_then_optimizer, (hook, optimizer_state))
    return composed(then_step, hook, name=name, made_by=made_by, has_effects=True)


def averaged_in_place(hook: Hook, state: Any, bucket: Any) -> Steps:
    """Return the steps of a hook whose result ends in the bucket's own buffer, and is that.

    So ``bucket.gradients()`` are then the averaged ones, wherever the hook put its result and
    whatever buffer it set in the meantime.

    Raises ``TypeError`` for a bucket that cannot be stepped: of sparse gradients
    (``bucket.gradients()`` is then empty), or of the compiled python reducer.
    """
    if isinstance(bucket, ParameterBucket):
        raise TypeError(
            "an optimizer cannot be stepped inside the graph of the compiled python reducer; call "
            "optimizer.step() after backward, or set torch._dynamo.config.optimize_ddp = True"
        )
    buffer: torch.Tensor = bucket.buffer()
    if buffer.layout is not torch.strided:
        raise TypeError(
            f"an optimizer is overlapped for dense gradients only, and those of bucket "
            f"{bucket.index()} are sparse; call optimizer.step() after backward for this model, or "
            "make its embeddings with sparse=False"
        )
    result: torch.Tensor = yield from steps_of(hook, state, bucket)
    bucket.set_buffer(buffer)
    if result is not buffer:
        with torch.no_grad():
            buffer.copy_(result.view_as(buffer))
    return buffer
