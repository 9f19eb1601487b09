"""What steps parameters from a hook: a functional optimizer, or an ordinary one a parameter.

    bucket.gradients() --in each parameter's memory layout--> step_param(parameter, gradient)

Counterpart of torch's private ``_OptimizerHookState``; unlike there a gradient is read in its
parameter's memory layout (``channels_last``).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, Protocol

import torch
from torch.optim.optimizer import Optimizer, ParamsT

from ..capture.buckets import GradBucketLike


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
