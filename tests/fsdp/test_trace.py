"""What tracing a sharded model says, as far as one process can tell."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

from hooktrace import HookError, Tracer, fsdp
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


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    with Tracer(channel=False) as made:
        yield made


def traced(tracer: Tracer, **options: Any) -> tuple[Any, Any]:
    """Return a model that is one unit, traced with hooks, and what it communicates with."""
    model = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(2)))
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    fsdp.trace(model, tracer=tracer, **options)
    return model, next(groups_of(model)).comms


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


def test_what_is_no_sharded_model_is_refused(tracer: Tracer) -> None:
    """Each with what to do."""
    fsdp1 = FullyShardedDataParallel(nn.Linear(4, 4), device_id=torch.device("cpu"))
    refused: Any = {
        "call torch.distributed.fsdp.fully_shard on it first": nn.Linear(2, 2),
        "cannot trace a list; pass the module": [],
        r"^FSDP1 \(Ful.* shows its .* with fully_shard to trace it$": nn.Sequential(fsdp1),
    }
    for why, model in refused.items():
        with pytest.raises(TypeError, match=why):
            fsdp.trace(model, tracer=tracer)


@pytest.mark.parametrize(
    "make", [hooks.fp16_reduce_scatter, hooks.bf16_reduce_scatter, hooks.EightBitReduceScatter]
)
def test_what_error_feedback_keeps_is_the_units(make: Any, tracer: Tracer) -> None:
    """So one hook serves several models; what a unit's step has lost is in its own next one.

    Not where others of the same size are trained then, or where some had no gradients.
    """
    hook = make(error_feedback=True)
    for model, comms in (traced(tracer, reduce_scatter=hook) for _ in range(2)):
        for trained, numel, is_kept in (
            *(((True, False), 16, True), ((False, True), 16, True)),
            *(((True, True), 16, False), ((True, True), 32, True)),
        ):
            for layer, is_trained in zip(model, trained, strict=True):
                layer.weight.requires_grad_(is_trained)
            given, sent = torch.linspace(0.001, 1, numel), torch.empty(numel)
            comms.reduce_scatter(sent, first := given.clone(), dist.group.WORLD, dist.ReduceOp.SUM)
            lost = given - sent
            comms.reduce_scatter(sent, second := given.clone(), dist.group.WORLD, dist.ReduceOp.SUM)
            assert torch.equal(first, given)
            assert lost.any()
            assert torch.equal(second, given + lost * is_kept)


def test_a_zero_is_gathered_where_tiny_numbers_are_none(tracer: Tracer) -> None:
    """As a scale that is flushed to 0 would make NaN of it."""
    _, comms = traced(tracer, all_gather=hooks.Fp8AllGather())
    torch.set_flush_denormal(True)
    comms.all_gather(whole := torch.empty(4), torch.zeros(4), dist.group.WORLD)
    torch.set_flush_denormal(False)
    assert not whole.any()


def test_a_hooks_error_names_its_unit(tracer: Tracer) -> None:
    """A sharded model has no buckets."""
    _, comms = traced(tracer, reduce_scatter=hooks.bf16_reduce_scatter())
    with pytest.raises(HookError, match="unit <root>, stage decompress"):
        comms.reduce_scatter(torch.ones(3), torch.ones(4), dist.group.WORLD, dist.ReduceOp.SUM)


def test_a_model_is_traced_once(tracer: Tracer) -> None:
    """What began before ends, also where a part of the model is traced anew; all is undone."""
    model = nn.Sequential(sharded(), sharded())
    fsdp.trace(model, tracer=tracer)
    handle = fsdp.trace(model[0], tracer=tracer)
    assert [is_traced(part) for part in model] == [True, False]
    handle.remove()
    assert not is_traced(model)
    assert not any(part._forward_pre_hooks for part in [model])
