"""Compiled models, and the compiled python reducer, on 2 real gloo ranks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import nn
from torch._dynamo import compiled_autograd
from torch._dynamo.utils import counters
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer, hooks
from tests.distributed.harness import on, scenario
from tests.distributed.models import backward, gradients, make_ddp, make_model
from tests.versions import COMPILES_GENERATORS

pytestmark = pytest.mark.slow

Hook = Callable[..., Any]

ERRORS: dict[str, tuple[Hook, float]] = {
    "fp16": (hooks.fp16_compress_hook, 0.0),
    # Of one element at most half a step, 1/510 of the range: the reducer calls the hook for each
    # parameter.
    "quantised": (hooks.quantization_pertensor_hook, 0.02),
}
"""Hooks of one round, and by how much they may differ under that reducer."""


def reduced_by(reducer: str | bool, hook: Hook, rank: int) -> torch.Tensor:
    """Return the gradients of a second step."""
    before = torch._dynamo.config.optimize_ddp
    torch._dynamo.reset()
    torch._dynamo.config.optimize_ddp = reducer
    try:
        called: Any = make_ddp(layers=1)
        called.register_comm_hook(None, hook)
        passes: Callable[[], Any] = nullcontext
        if reducer == "python_reducer":
            called = torch.compile(called, backend="eager")
            passes = partial(compiled_autograd._enable, torch.compile(backend="eager"))
        for step in range(2):
            called.zero_grad()
            with passes():
                backward(called, rank, step)
        return gradients(called)
    finally:
        torch._dynamo.config.optimize_ddp = before
        torch._dynamo.reset()


@pytest.mark.skipif(not COMPILES_GENERATORS, reason="dynamo of this torch fails on generators")
@on(2)
@scenario(deadline_s=240)
def test_single_round_hooks_run_compiled(rank: int) -> None:
    """The same gradients; a tracer says what it cannot see, since it is given no bucket."""
    for name, (hook, most) in ERRORS.items():
        expected = reduced_by(True, hook, rank)
        found = reduced_by("python_reducer", hook, rank)
        assert (found - expected).norm() / expected.norm() <= most, name
    expected = reduced_by(True, hooks.fp16_compress_hook, rank)
    for hook in (hooks.fp16_compress_hook, default_hooks.fp16_compress_hook):
        with Tracer() as tracer:
            traced = hooktrace.trace(hook, tracer=tracer)
            assert torch.equal(reduced_by("python_reducer", traced, rank), expected)
            assert [a.kind for a in tracer.anomalies()] == ["compiled_reducer"]


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
    fp16 = default_hooks.fp16_compress_hook
    for hook, name, stock in (
        (hooks.fp16_compress_hook, "fp16_compress_hook", partial(_register, fp16)),
        (None, "ddp_allreduce", lambda ddp, compiled: None),
    ):
        expected = trained(stock, rank)
        with Tracer(error_every=0) as tracer:
            instrument = partial(hooktrace.instrument, hook=hook, tracer=tracer)
            found = trained(lambda _, compiled, to=instrument: to(compiled), rank)
        assert torch.equal(found, expected)
        assert [(s.hook, s.bucket_count) for s in tracer.steps()] == [(name, 1), *[(name, 3)] * 3]
        assert tracer.anomalies() == []
        names = {p.name for b in tracer.layouts()[-1].buckets for p in b.parameters}
        assert names == {f"{layer}.{kind}" for layer in range(3) for kind in ("weight", "bias")}


def _register(hook: Hook, ddp: DistributedDataParallel, compiled: object) -> None:
    ddp.register_comm_hook(None, hook)
