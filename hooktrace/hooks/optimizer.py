"""Optimizer overlap: the parameters of a bucket are stepped as soon as their gradients are there.

    hook's steps --> averaged gradients --> bucket's own buffer --> optimizer step --> DDP
    optimizer step: bucket.gradients() --in each parameter's memory layout--> step_param

The step runs in the callback of the bucket's last collective, while backward goes on with the
layers before.  Counterpart of torch's private ``_hook_then_optimizer`` and ``_OptimizerHookState``;
unlike there it steps with what the hook returned, also where that is another tensor than the
buffer, and reads a gradient in its parameter's memory layout (``channels_last``).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, Protocol

import torch
from torch.optim.optimizer import Optimizer, ParamsT

from ..staging.composition import Hook, composed, hook_name, steps_of
from ..staging.driver import Steps
from ..staging.hook import StagedHook
from ..staging.slots import GradBucketLike


class FunctionalOptimizer(Protocol):
    """What steps one parameter with a gradient that is handed to it."""

    def step_param(self, param: torch.Tensor, grad: torch.Tensor, /) -> object:
        """Update ``param`` in place; ``grad``, of its shape and dtype, must stay as it is.

        Called without gradient recording, on any thread, for several parameters at the same time
        but never twice for one.
        """


class OptimizerHookState:
    """What ``hook_then_optimizer`` steps: a functional optimizer and the parameters it is for.

    ``functional_optim``: an object with ``step_param(param, grad)``, such as the functional
    optimizers of ``torch.distributed.optim``; for an ordinary optimizer use ``of``.  ``params``:
    the parameters to step, ``None`` for all that DDP hands over.

    It pickles if ``functional_optim`` does; parameters stay the model's own only where the model is
    in the same pickle, as it is in one of a DDP model with its hook.

    Raises ``TypeError`` for an optimizer without ``step_param`` and for ``params`` that are not
    tensors, ``ValueError`` for empty ``params``.
    """

    def __init__(
        self,
        functional_optim: FunctionalOptimizer,
        params: Iterable[torch.Tensor] | None = None,
    ) -> None:
        if not callable(getattr(functional_optim, "step_param", None)):
            kind = type(functional_optim).__name__
            raise TypeError(
                f"OptimizerHookState needs an optimizer with step_param(param, grad), and {kind} "
                "has none; for an ordinary optimizer class use "
                "OptimizerHookState.of(torch.optim.SGD, ddp.parameters(), lr=0.1)"
            )
        self.functional_optimizer = functional_optim
        self.params_to_optimize = None if params is None else _parameters(params)

    @staticmethod
    def of(
        optimizer_class: type[Optimizer], params: ParamsT, **options: Any
    ) -> PerParameterHookState:
        """Return a state that steps with an ordinary optimizer class.

        ``params``: parameters or parameter groups, and ``options``, as ``optimizer_class`` takes
        them; parameters of the model that are not among them are not stepped.

        Raises ``TypeError`` for what is no optimizer class or needs a closure (``LBFGS``), and what
        the class itself raises.
        """
        return PerParameterHookState(optimizer_class, params, **options)

    @torch.no_grad()  # callbacks run on threads of which each has its own grad mode: on
    def step(self, bucket: GradBucketLike) -> None:
        """Step the bucket's parameters with the gradients that are in its buffer."""
        chosen = self.params_to_optimize
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            if chosen is None or parameter in chosen:
                self.functional_optimizer.step_param(parameter, _laid_out(gradient, parameter))


class PerParameterHookState(OptimizerHookState):
    """One ordinary optimizer for each parameter; made by ``OptimizerHookState.of``.

    Each optimizer sees every step of its parameter once, whatever it keeps (counters in its
    parameter group, say); none may combine parameters, as clipping by the norm of all does.

    The learning rate and the other options are in ``param_groups``, one group a parameter::

        for group in state.param_groups:
            group["lr"] = 0.01

    or set by a scheduler for each of ``optimizers``.  Change them between backward passes.
    """

    def __init__(self, optimizer_class: type[Optimizer], params: ParamsT, **options: Any) -> None:
        _check_class(optimizer_class)
        # All at once first: torch knows and checks the forms in which parameters may come.
        groups = optimizer_class(params, **options).param_groups
        self._by_parameter: dict[torch.Tensor, Optimizer] = {}
        for group in groups:
            shared = {k: v for k, v in group.items() if k not in ("params", "param_names")}
            for parameter in group["params"]:
                alone = [{**shared, "params": [parameter]}]
                self._by_parameter[parameter] = optimizer_class(alone, **options)
        super().__init__(self, self._by_parameter)

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

    def step_param(self, param: torch.Tensor, grad: torch.Tensor) -> None:
        """Step one parameter; its ``grad`` attribute is afterwards what it was before."""
        # DDP writes the attribute when all buckets are done, and backward is past this parameter.
        kept, param.grad = param.grad, grad
        try:
            self._by_parameter[param].step()
        finally:
            param.grad = kept


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


def _parameters(params: Iterable[torch.Tensor]) -> set[torch.Tensor]:
    chosen: list[Any] = list(params)
    if not chosen:
        raise ValueError(
            "OptimizerHookState has no parameters to step: params is empty, perhaps a generator "
            "that was used before; pass list(ddp.parameters()), or None for all"
        )
    for parameter in chosen:
        if not isinstance(parameter, torch.Tensor):
            raise TypeError(
                f"params of OptimizerHookState holds a {type(parameter).__name__}; "
                "pass parameters, such as ddp.parameters()"
            )
    return set(chosen)


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
