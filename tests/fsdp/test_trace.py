"""What tracing a sharded model says, as far as one process can tell."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

from hooktrace import Tracer, fsdp
from hooktrace.fsdp import hooks
from hooktrace.fsdp.torch_groups import groups_of
from hooktrace.fsdp.trace import is_traced
from hooktrace.tracing.trace import unwrapped


@pytest.fixture(scope="module", autouse=True)
def _group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def sharded() -> nn.Module:
    """Return a model that is sharded over one rank, and replicated over one."""
    model = nn.Linear(4, 4)
    fully_shard(model, mesh=init_device_mesh("cpu", (1, 1), mesh_dim_names=("all", "one")))
    return model


def test_taking_the_tracing_away_leaves_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody is blamed; on a CPU, where what is exposed is known, FSDP keeps its own methods."""
    model = sharded()
    state: Any = model
    (group,) = state._get_fsdp_state()._fsdp_param_groups
    before = set(vars(group))
    with caplog.at_level(logging.WARNING, "hooktrace"), Tracer(channel=False) as tracer:
        handle = fsdp.trace(model, tracer=tracer)
        model(torch.ones(2, 4)).sum().backward()
        assert not any(callable(vars(group)[name]) for name in set(vars(group)) - before)
        assert type(group.comm_ctx.reduce_scatter_states) is list
        handle.remove()
        model(torch.ones(2, 4)).sum().backward()
        assert tracer.flush()
        assert len(tracer.steps()) == 1
    assert caplog.messages == []


@pytest.mark.parametrize("wrapper", ["_orig_mod", "_forward_module"])
def test_units_are_named_as_without_a_wrapper(wrapper: str) -> None:
    """Of torch.compile, and of Fabric."""
    outer = nn.Module()
    outer.add_module(wrapper, sharded())
    assert [group.unit.name for group in groups_of(unwrapped(outer))] == ["<root>"]


FSDP1 = r"^FSDP1 \(FullyShardedDataParallel\) shows its collectives to nobody.*; shard the model "


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: nn.Linear(2, 2), "call torch.distributed.fsdp.fully_shard on it first"),
        (list, "cannot trace a list; pass the module"),
        (
            lambda: nn.Sequential(
                FullyShardedDataParallel(nn.Linear(4, 4), device_id=torch.device("cpu"))
            ),
            FSDP1 + "with fully_shard to trace it$",
        ),
    ],
    ids=["not sharded", "no model", "FSDP1"],
)
def test_what_is_no_sharded_model_is_refused(make: Callable[[], Any], why: str) -> None:
    """Each with what to do."""
    with Tracer(channel=False) as tracer, pytest.raises(TypeError, match=why):
        fsdp.trace(make(), tracer=tracer)


@pytest.mark.parametrize(
    "hook",
    [
        hooks.fp16_reduce_scatter(error_feedback=True),
        hooks.bf16_reduce_scatter(error_feedback=True),
        hooks.EightBitReduceScatter(error_feedback=True),
    ],
    ids=lambda hook: hook.name,
)
def test_what_error_feedback_keeps_is_the_units(hook: hooks.ScatterHook) -> None:
    """So one hook serves several models; what a unit's step has lost is in its own next one."""
    group, gradients = dist.group.WORLD, torch.tensor([1.0, 0.001, -0.3, 1e-7])
    assert group is not None
    first, second = (
        hooks.Reduction(gradients.clone(), torch.empty(4), group, 1.0, "<root>") for _ in range(2)
    )
    for reduction in (first, second):
        next(hook.steps(reduction))
        assert torch.equal(reduction.gradients, gradients)
    lost = first.memory[id(hook)].clone()
    assert torch.equal(lost, second.memory[id(hook)])
    assert lost.any()
    next(hook.steps(first))
    assert torch.equal(first.gradients, gradients + lost)


def test_a_model_is_traced_once() -> None:
    """What began before ends, also where a part of the model is traced anew; all is undone."""
    model = nn.Sequential(sharded(), sharded())
    with Tracer(channel=False) as tracer:
        fsdp.trace(model, tracer=tracer)
        handle = fsdp.trace(model[0], tracer=tracer)
        assert [is_traced(part) for part in model] == [True, False]
        handle.remove()
        assert not is_traced(model)
        assert not any(part._forward_pre_hooks for part in [model])
