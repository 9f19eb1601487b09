"""Optimizer overlap: the parameters of a bucket are stepped as soon as their gradients are there.

    hook's steps --> averaged gradients --> bucket's own buffer --> optimizer step --> DDP
    optimizer step: bucket.gradients() --in each parameter's memory layout--> its own optimizer

The step runs in the callback of the bucket's last collective, while backward goes on with the
layers before.  Counterpart of torch's private ``_hook_then_optimizer``, for ordinary optimizers;
unlike there it steps with what the hook returned, also where that is another tensor than the
buffer, and reads a gradient in its parameter's memory layout (``channels_last``).
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.optim.optimizer import Optimizer, ParamsT

from ..staging.driver import Steps
from ..staging.hook import Hook, StagedHook, composed, hook_name, steps_of
from ..staging.slots import GradBucketLike


class OptimizerHookState:
    """What ``hook_then_optimizer`` steps: one ordinary optimizer for each parameter; see ``of``.

    Each optimizer sees every step of its parameter once, whatever it keeps (counters in its
    parameter group, say); none may combine parameters, as clipping by the norm of all does.

    The learning rate and the other options are in ``param_groups``, one group a parameter::

        for group in state.param_groups:
            group["lr"] = 0.01

    or set by a scheduler for each of ``optimizers``.  Change them between backward passes.

    Parameters stay the model's own only where the model is in the same pickle, as it is in one of
    a DDP model with its hook.
    """

    def __init__(self, by_parameter: dict[torch.Tensor, Optimizer]) -> None:
        self._by_parameter = by_parameter

    @classmethod
    def of(
        cls, optimizer_class: type[Optimizer], params: ParamsT, **options: Any
    ) -> OptimizerHookState:
        """Return a state that steps with an ordinary optimizer class.

        ``params``: parameters or parameter groups, and ``options``, as ``optimizer_class`` takes
        them; parameters of the model that are not among them are not stepped.  Each optimizer has
        a copy of an option that is a tensor.

        Raises ``TypeError`` for what is no optimizer class or needs a closure (``LBFGS``), and what
        the class itself raises.
        """
        _check_class(optimizer_class)
        # All at once first: torch knows and checks the forms in which parameters may come.
        groups = optimizer_class(params, **options).param_groups
        by_parameter: dict[torch.Tensor, Optimizer] = {}
        for group in groups:
            shared = {k: v for k, v in group.items() if k not in ("params", "param_names")}
            for parameter in group["params"]:
                # A rate may be a tensor, which each scheduler changes in place.
                rates = {k: v.detach().clone() for k, v in shared.items() if torch.is_tensor(v)}
                alone = [{**shared, **rates, "params": [parameter]}]
                by_parameter[parameter] = optimizer_class(alone, **options)
        return cls(by_parameter)

    @property
    def optimizers(self) -> list[Optimizer]:
        """The optimizers, one a parameter, in the order in which the parameters were given."""
        return list(self._by_parameter.values())

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The parameter groups of all optimizers, to read and set their options."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return all optimizers' state, to save with the model's."""
        return {"optimizers": [optimizer.state_dict() for optimizer in self.optimizers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned for the same parameters in the same order.

        Raises ``ValueError`` for the state of another number of parameters or of another kind.
        """
        saved = state_dict.get("optimizers")
        if saved is None or len(saved) != len(self._by_parameter):
            found = "none" if saved is None else len(saved)
            raise ValueError(
                f"the saved state is of {found} per-parameter optimizers, and there are "
                f"{len(self._by_parameter)}; load what state_dict() of an OptimizerHookState.of "
                "returned for the same parameters"
            )
        for optimizer, state in zip(self.optimizers, saved, strict=True):
            optimizer.load_state_dict(state)

    @torch.no_grad()  # callbacks run on threads of which each has its own grad mode: on
    def step(self, bucket: GradBucketLike) -> None:
        """Step the bucket's parameters with the gradients that are in its buffer.

        Their ``grad`` attributes are afterwards what they were before: DDP writes them when all
        buckets are done, and backward is past these parameters.
        """
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            optimizer = self._by_parameter.get(parameter)
            if optimizer is None:
                continue
            kept, parameter.grad = parameter.grad, _laid_out(gradient, parameter)
            try:
                optimizer.step()
            finally:
                parameter.grad = kept


def hook_then_optimizer(hook: Hook, optimizer_state: OptimizerHookState) -> StagedHook:
    """Return a hook that runs ``hook`` and then steps the bucket's parameters.

    ``hook``: any hook, staged or plain; its state is the one that is registered.
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

    Pickles if ``hook`` does.

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
        buffer = yield from _averaged_in_place(hook, state, bucket)
        optimizer_state.step(bucket)
        return buffer

    made_by = (hook_then_optimizer, (hook, optimizer_state))
    return composed(then_step, hook, name=name, made_by=made_by, has_effects=True)


def _averaged_in_place(hook: Hook, state: Any, bucket: Any) -> Steps:
    """Return the steps of a hook whose result ends in the bucket's own buffer, and is that.

    So ``bucket.gradients()`` are then the averaged ones, wherever the hook put its result and
    whatever buffer it set in the meantime.

    Raises ``TypeError`` for a bucket that cannot be stepped: of sparse gradients, of which
    ``bucket.gradients()`` is empty.
    """
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


def _laid_out(gradient: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Return one of ``bucket.gradients()`` as it lies in the bucket.

    DDP writes the gradient of a dense parameter in the parameter's own memory layout, and
    ``gradients()`` reads every gradient as contiguous: for a channels_last weight, permuted.
    """
    strides = parameter.stride()
    if gradient.stride() == strides:
        return gradient
    dense = torch.empty_like(parameter, device="meta").stride() == strides
    return gradient.as_strided(parameter.size(), strides) if dense else gradient


def _check_class(optimizer_class: Any) -> None:
    if not (isinstance(optimizer_class, type) and issubclass(optimizer_class, Optimizer)):
        shown = getattr(optimizer_class, "__name__", f"a {type(optimizer_class).__name__}")
        raise TypeError(
            f"OptimizerHookState.of needs a subclass of torch.optim.Optimizer, not {shown}; "
            "pass the class, such as torch.optim.SGD, and its options"
        )
    try:
        inspect.signature(optimizer_class.step).bind(None)
    except TypeError:
        raise TypeError(
            f"{optimizer_class.__name__} cannot be stepped from a hook: its step() needs a "
            "closure; use an optimizer such as torch.optim.SGD or torch.optim.Adam"
        ) from None
