"""What tracing a sharded model says, as far as one process can tell."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from hooktrace import Tracer, fsdp


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


def test_taking_the_tracing_away_blames_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody has set anything anew."""
    model = sharded()
    with caplog.at_level(logging.WARNING, "hooktrace"), Tracer(channel=False) as tracer:
        handle = fsdp.trace(model, tracer=tracer)
        model(torch.ones(2, 4)).sum().backward()
        handle.remove()
        model(torch.ones(2, 4)).sum().backward()
        assert tracer.flush()
        assert len(tracer.steps()) == 1
    assert caplog.messages == []


def test_what_is_no_sharded_model_is_refused() -> None:
    """Each with what to do."""
    with Tracer(channel=False) as tracer:
        with pytest.raises(TypeError, match=r"call torch.distributed.fsdp.fully_shard on it first"):
            fsdp.trace(nn.Linear(2, 2), tracer=tracer)
        with pytest.raises(TypeError, match=r"cannot trace a list; pass the module"):
            fsdp.trace([], tracer=tracer)  # type: ignore[arg-type]
