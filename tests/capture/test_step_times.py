"""The times of a step: of gradients one by one, of forward passes and of optimizers."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import torch
from torch import nn
from torch.optim import optimizer as torch_optimizer

from hooktrace.capture.step_times import ProcessorTimes, StepTimes
from hooktrace.testing import FakeClock


def left_behind(model: nn.Module) -> int:
    """Return how many hooks are registered on a model, its parameters and all optimizers."""
    parameters = sum(len(p._post_accumulate_grad_hooks or ()) for p in model.parameters())
    around = len(model._forward_pre_hooks) + len(model._forward_hooks)
    pre, post = (
        torch_optimizer._global_optimizer_pre_hooks,
        torch_optimizer._global_optimizer_post_hooks,
    )
    return parameters + around + len(pre) + len(post)


def watched(clock: Any) -> tuple[nn.Sequential, StepTimes]:
    """Return two linear layers, of which everything is watched."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    processor = FakeClock(start_ns=500)
    times = StepTimes(clock, processor_clock=lambda: ProcessorTimes(processor(), 7))
    times.watch_parameters(model.named_parameters())
    times.watch_forward(model)
    times.watch_optimizers()
    return model, times


def test_gradients_come_in_the_order_of_the_backward_pass() -> None:
    """Each with a time of its own; the forward pass before them, and processor time once."""
    model, times = watched(FakeClock(start_ns=100))
    model(torch.ones(1, 2)).sum().backward()
    taken = times.take_gradients()
    times.remove()
    assert taken == (("1.weight", "0.weight"), (102, 103), 1, (500, 7))
    assert times.take_gradients().names == ()


def test_a_gradient_counts_when_it_came_last() -> None:
    """Micro-steps before the one that sends are not it, nor is a frozen one's last time."""
    model, times = watched(FakeClock())
    model(torch.ones(1, 2)).sum().backward()
    model[1].weight.requires_grad_(False)
    model(torch.ones(1, 2)).sum().backward()
    with torch.no_grad():
        model(torch.ones(1, 2))  # an evaluation, say, which no backward pass follows
    assert times.take_gradients() == (("0.weight",), (6,), 1, (501, 7))
    times.remove()


def test_of_optimizers_that_call_each_other_the_outer_one_counts() -> None:
    """And steps add up, until they are taken."""
    model, times = watched(FakeClock())
    inner = torch.optim.SGD(model.parameters(), lr=0.1)

    class Outer(torch.optim.Optimizer):
        def step(self, closure: Any = None) -> None:
            inner.step()

    outer = Outer(model.parameters(), {})
    assert times.take_optimizer_ns() is None
    outer.step()
    inner.step()
    assert times.take_optimizer_ns() == 2
    times.remove()


def test_nothing_is_left_behind() -> None:
    """Neither where it is removed, nor where the model and whoever watched it are let go of."""
    model, times = watched(FakeClock())
    assert left_behind(model) == 6
    times.remove()
    assert left_behind(model) == 0
    model, times = watched(FakeClock())
    del model, times
    gc.collect()
    assert left_behind(nn.Linear(1, 1)) == 0


def test_a_copy_of_a_watched_model_is_not_watched() -> None:
    """An average of weights, a checkpoint of the whole model: neither fails, neither is timed."""
    model, times = watched(FakeClock())
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        copied(torch.ones(1, 2)).sum().backward()
        assert times.take_gradients() == ((), (), None, None)
    times.remove()


def test_a_clock_that_fails_fails_no_training() -> None:
    """Then nothing is known."""

    def broken() -> int:
        raise OSError("no clock")

    model, times = watched(broken)
    model(torch.ones(1, 2)).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert times.take_gradients()[:3] == ((), (), None)
    times.remove()
