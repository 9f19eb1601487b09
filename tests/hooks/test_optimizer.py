"""Optimizer overlap without ranks: what is refused when it is made, and saved state."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from torch import nn

import hooktrace
from hooktrace.hooks import OptimizerHookState, hook_then_optimizer
from hooktrace.hooks.default import allreduce_hook
from hooktrace.staging.hook import staged
from hooktrace.testing import FakeBucket


def parameter(*values: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values))


@staged
def constant_hook(state: Any, bucket: Any) -> Any:
    """Return threes in a tensor of its own, and leave a float16 buffer behind."""
    bucket.set_buffer(bucket.buffer().half())
    return torch.full((bucket.buffer().numel(),), 3.0)
    yield


def sgd(*parameters: nn.Parameter) -> OptimizerHookState:
    """Return what subtracts gradients."""
    return OptimizerHookState.of(torch.optim.SGD, parameters, lr=1.0)


def test_the_result_of_the_hook_is_stepped() -> None:
    """Not what is in the bucket; it goes to the bucket's own buffer, which is the result.

    Stepping lends each parameter the bucket's gradient; what is not among the given stays.
    """
    first, other, second = parameter(1.0, 2.0), parameter(9.0), parameter(5.0)
    first.grad = torch.tensor([7.0, 7.0])
    bucket = FakeBucket([first, other, second])
    buffer = bucket.buffer()
    result = hook_then_optimizer(constant_hook, sgd(first, second))(None, bucket).value()
    assert result is buffer
    assert result.tolist() == [3.0] * 4
    assert [p.tolist() for p in (first, other, second)] == [[-2.0, -1.0], [9.0], [2.0]]
    assert first.grad.tolist() == [7.0, 7.0]
    assert second.grad is None


def test_a_result_of_another_length_is_not_broadcast() -> None:
    """It is the hook's error."""

    @staged
    def short_hook(state: Any, bucket: Any) -> Any:
        return torch.ones(1)
        yield

    weight = parameter(1.0, 2.0)
    hook = hook_then_optimizer(short_hook, sgd(weight))
    with pytest.raises(hooktrace.HookError, match="short_hook"):
        hook(None, FakeBucket([weight]))


@pytest.mark.parametrize(
    ("optimizer", "reason"),
    [
        (torch.optim.LBFGS, "LBFGS cannot be stepped from a hook: its step"),
        (nn.Linear, "not Linear; pass the class"),
        (torch.optim.SGD([parameter(1.0)]), "not a SGD; pass the class"),
    ],
)
def test_what_is_no_usable_optimizer_class(optimizer: Any, reason: str) -> None:
    """Refused when the state is made."""
    with pytest.raises(TypeError, match=reason):
        OptimizerHookState.of(optimizer, [parameter(1.0)])


def test_named_parameters_and_torchs_own_checks() -> None:
    """Taken where the optimizer class takes them; as strict as it is with options."""
    model = nn.Linear(2, 2)
    state = OptimizerHookState.of(torch.optim.SGD, model.named_parameters(), lr=0.5)
    assert [group["params"] for group in state.param_groups] == [[p] for p in model.parameters()]
    assert [group["lr"] for group in state.param_groups] == [0.5, 0.5]
    weight = parameter(1.0)
    for given, options, why in (
        ([weight], {"lr": -1}, "Invalid learning rate: -1"),
        ([{"params": [weight]}] * 2, {}, "some parameters appear in more than one parameter group"),
    ):
        with pytest.raises(ValueError, match=why):
            OptimizerHookState.of(torch.optim.SGD, given, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("saved", "found"), [({}, "none"), ({"optimizers": []}, "0")])
def test_the_state_of_something_else(saved: dict[str, Any], found: str) -> None:
    """The error gives both numbers."""
    state = OptimizerHookState.of(torch.optim.SGD, [parameter(1.0)], lr=0.1)
    with pytest.raises(ValueError, match=f"of {found} per-parameter optimizers, and there are 1;"):
        state.load_state_dict(saved)


def test_what_is_no_hook_and_no_state() -> None:
    """The errors name the wrapper."""
    state = sgd(parameter(1.0))
    with pytest.raises(TypeError, match=r"hook_then_optimizer\(int\) needs a hook"):
        hook_then_optimizer(3, state)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="needs an OptimizerHookState, not a int"):
        hook_then_optimizer(allreduce_hook, 3)  # type: ignore[arg-type]
    with hooktrace.Tracer() as tracer:
        traced = hooktrace.trace(allreduce_hook, tracer=tracer)
        with pytest.raises(TypeError, match="trace the outermost hook"):
            hook_then_optimizer(traced, state)


def test_a_hook_pickles_with_its_optimizers_and_parameters() -> None:
    """In one pickle parameters and optimizers belong together, on the other side too."""
    weight = parameter(1.0, 2.0)
    hook = hook_then_optimizer(constant_hook, sgd(weight))
    copied, weight_copy = pickle.loads(pickle.dumps((hook, weight)))
    copied(None, FakeBucket([weight_copy]))
    assert weight_copy.tolist() == [-2.0, -1.0]
    assert weight.tolist() == [1.0, 2.0]
    assert copied.__qualname__ == "hook_then_optimizer(constant_hook)"
