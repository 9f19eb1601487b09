"""Optimizer overlap without ranks: what is refused when it is made, and saved state."""

from __future__ import annotations

import pickle
from collections.abc import Callable
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
    return OptimizerHookState.of(torch.optim.SGD, parameters, lr=1.0)


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


def made_of(optimizer: Any, given: Any = None, **options: Any) -> Callable[[], object]:
    return lambda: OptimizerHookState.of(optimizer, given or [parameter(1.0)], **options)


def loading(saved: dict[str, Any]) -> Callable[[], object]:
    return lambda: sgd(parameter(1.0)).load_state_dict(saved)


def around(hook: Any, state: Any = None) -> Callable[[], object]:
    return lambda: hook_then_optimizer(hook, state or sgd(parameter(1.0)))


SGD, TWICE = torch.optim.SGD, [{"params": [parameter(1.0)]}] * 2


@pytest.mark.parametrize(
    ("make", "error", "reason"),
    [
        (made_of(torch.optim.LBFGS), TypeError, "LBFGS cannot be stepped from a hook: its step"),
        (made_of(nn.Linear), TypeError, "not Linear; pass the class"),
        (made_of(sgd(parameter(1.0))), TypeError, "not a .*; pass the class"),
        # torch's own checks hold.
        (made_of(SGD, lr=-1), ValueError, "Invalid learning rate: -1"),
        (made_of(SGD, TWICE), ValueError, "some parameters appear in more than one parameter gr"),
        (loading({}), ValueError, "of none per-parameter optimizers, and there are 1;"),
        (loading({"optimizers": []}), ValueError, "of 0 per-parameter optimizers, and there are"),
        (around(3), TypeError, r"hook_then_optimizer\(int\) needs a hook"),
        (around(allreduce_hook, 3), TypeError, "needs an OptimizerHookState, not a int"),
    ],
)
def test_what_cannot_work_is_refused(
    make: Callable[[], object], error: type[Exception], reason: str
) -> None:
    """When it is made; the errors name the wrapper, and give both numbers."""
    with pytest.raises(error, match=reason):
        make()


def test_a_rate_that_is_a_tensor_is_each_optimizer_s_own() -> None:
    """Schedulers change it in place, and each optimizer has one."""
    state = OptimizerHookState.of(SGD, map(parameter, (1.0, 2.0)), lr=torch.tensor(1.0))
    for optimizer in state.optimizers:
        torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5).step()
    assert [float(group["lr"]) for group in state.param_groups] == [0.5, 0.5]


def test_the_outermost_hook_is_to_be_traced() -> None:
    with hooktrace.Tracer() as tracer:
        traced = hooktrace.trace(allreduce_hook, tracer=tracer)
        with pytest.raises(TypeError, match="trace the outermost hook"):
            around(traced)()


def test_a_hook_pickles_with_its_optimizers_and_parameters() -> None:
    """In one pickle parameters and optimizers belong together, on the other side too."""
    weight = parameter(1.0, 2.0)
    hook = hook_then_optimizer(constant_hook, sgd(weight))
    copied, weight_copy = pickle.loads(pickle.dumps((hook, weight)))
    copied(None, FakeBucket([weight_copy]))
    assert weight_copy.tolist() == [-2.0, -1.0]
    assert weight.tolist() == [1.0, 2.0]
    assert copied.__qualname__ == "hook_then_optimizer(constant_hook)"
