"""Compiled models on 2 real gloo ranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import nn
from torch._dynamo.utils import counters
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer, hooks
from tests.distributed.harness import on
from tests.distributed.models import backward, gradients, make_model

pytestmark = pytest.mark.slow

Hook = Callable[..., Any]


def trained(set_up: Callable[[Any, Any], object], rank: int) -> torch.Tensor:
    """Return the gradients of some steps of a compiled model; ``set_up``: of DDP's and of it."""
    torch._dynamo.reset()
    counters.clear()
    # Buckets below 1 MB torch's compiler refuses.
    ddp = DistributedDataParallel(make_model(3, width=512), bucket_cap_mb=1)
    compiled: nn.Module = torch.compile(ddp, backend="aot_eager")  # type: ignore[assignment]
    set_up(ddp, compiled)
    seen = []
    for step in range(4):
        ddp.zero_grad()
        backward(compiled, rank, step, width=512)
        seen.append(gradients(ddp).clone())
    assert counters["frames"]["ok"] > 0
    torch._dynamo.reset()
    return torch.stack(seen)


@on(2)
def test_instrument_takes_a_compiled_model(rank: int) -> None:
    """Its buckets are traced under the names of the model that was compiled; no bit changes."""
    ours, theirs = hooks.fp16_compress_hook, default_hooks.fp16_compress_hook
    for hook, name, stock in (
        (ours, "fp16_compress_hook", lambda ddp, _: ddp.register_comm_hook(None, theirs)),
        (None, "ddp_allreduce", lambda ddp, compiled: None),
    ):
        expected = trained(stock, rank)
        with Tracer(error_every=0) as tracer:
            instrument = partial(hooktrace.instrument, hook=hook, tracer=tracer)
            found = trained(lambda _, compiled, to=instrument: to(compiled), rank)
        assert torch.equal(found, expected)
        assert [(s.hook, s.bucket_count) for s in tracer.steps()] == [(name, 1), *[(name, 3)] * 3]
        assert tracer.anomalies() == []
        names = {p.name for b in tracer.assignments()[-1].buckets for p in b.parameters}
        assert names == {f"{layer}.{kind}" for layer in range(3) for kind in ("weight", "bias")}
