"""What is checked on real devices, by NCCL ranks with a device each, or on one that they share.

A check is a function of the rank that raises where it fails; ``test_on_devices.py`` runs them.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import AllReduce, Tracer, fsdp, hooks, staged, trace
from hooktrace.records import BucketRecord
from hooktrace.testing import FakeBucket
from tests.device.hook_table import HOOKS

Check = Callable[[int], None]
CHECKS: dict[str, Check] = {}

WARM = 3
"""Steps in which DDP itself waits for the device: it builds its buckets anew."""

STEPS = 24
"""So that each bucket is checked."""


def say(line: str) -> None:
    """Write how far the checks are, for those who wait, or end them."""
    sys.stderr.write(f"{line}\n")


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def model_of(rank: int, hook: Any, state: Any = None) -> DistributedDataParallel:
    """Return a model of several buckets on the current device."""
    torch.manual_seed(0)
    layers = [nn.Linear(512, 512) for _ in range(8)]
    ddp = DistributedDataParallel(
        nn.Sequential(*layers).cuda(), device_ids=[torch.cuda.current_device()], bucket_cap_mb=2
    )
    if hook is not None:
        ddp.register_comm_hook(state, hook)
    return ddp


@contextmanager
def no_synchronisation() -> Iterator[None]:
    """Have every call that waits for the device raise."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def train(rank: int, hook: Any, state: Any = None, steps: int = STEPS) -> torch.Tensor:
    """Train without a wait for the device after the first steps; return all steps' gradients."""
    ddp = model_of(rank, hook, state)
    torch.manual_seed(100 + rank)
    batches = torch.randn(steps, 16, 512, device="cuda")
    first = [gradients_of(ddp, batch) for batch in batches[:WARM]]
    torch.cuda.synchronize()
    with no_synchronisation():
        others = [gradients_of(ddp, batch) for batch in batches[WARM:]]
    torch.cuda.synchronize()
    return torch.stack([*first, *others])


def gradients_of(ddp: DistributedDataParallel, batch: torch.Tensor) -> torch.Tensor:
    """Return the averaged gradients of one step."""
    ddp.zero_grad()
    ddp(batch).square().sum().backward()
    return torch.cat([p.grad.flatten() for p in ddp.parameters() if p.grad is not None])


LOOKS: dict[str, dict[str, Any]] = {
    "traced": {"error_every": 0},
    "checked": {"error_every": 2, "error_all_buckets": True},
    "local": {"error_every": 2, "error": "local"},
    "debugged": {"error_every": 0, "debug": True},
}


@check
def every_hook_in_every_way(rank: int) -> None:
    """Traced, checked, debugged: bits as untraced, no wait for the device, nothing lost."""
    failed = []
    for name, (hook, make_state) in HOOKS.items():
        say(name)
        reference = train(rank, hook, make_state())
        for look, options in LOOKS.items():
            with Tracer(run_id=name, **options) as tracer:
                found = train(rank, trace(hook, tracer=tracer), make_state())
                tracer.flush()
                losses, buckets = tracer.losses(), tracer.buckets()
            if not torch.equal(found, reference):
                failed.append(f"{name} {look}: other gradients")
            if losses:
                failed.append(f"{name} {look}: {losses}")
            if not all(bucket.device is not None for bucket in buckets):
                failed.append(f"{name} {look}: buckets without device times")
            if look == "checked" and not any(bucket.error is not None for bucket in buckets):
                failed.append(f"{name} {look}: no error was measured")
    assert not failed, failed


@check
def gradients_of_torchs_own_hooks(rank: int) -> None:
    """Bit by bit, where the arithmetic is the same."""
    for ours, theirs in (
        (hooks.allreduce_hook, default_hooks.allreduce_hook),
        (hooks.bf16_compress_hook, default_hooks.bf16_compress_hook),
    ):
        reference = train(rank, theirs)
        with Tracer(error_every=0) as tracer:
            assert torch.equal(train(rank, trace(ours, tracer=tracer)), reference), ours


@check
def power_sgd_as_torchs(rank: int) -> None:
    """As close to an all-reduce as torch's own, which draws other random numbers."""
    exact = train(rank, hooks.allreduce_hook)[-1]
    options = {"matrix_approximation_rank": 8, "start_powerSGD_iter": 2}
    ours = train(rank, hooks.powerSGD_hook, hooks.PowerSGDState(None, **options))[-1]
    state = powerSGD_hook.PowerSGDState(None, **options)
    theirs = train(rank, powerSGD_hook.powerSGD_hook, state)[-1]
    errors = [float((found - exact).norm() / exact.norm()) for found in (ours, theirs)]
    assert errors[0] < 1.2 * errors[1] + 0.01, errors


@check
def the_errors_are_right(rank: int) -> None:
    """None for an all-reduce; of fp16 what rounding costs; and the same on the host."""
    for hook, low, high in (
        (hooks.allreduce_hook, 0.0, 1e-6),
        (hooks.fp16_compress_hook, 1e-5, 2e-3),
    ):
        with Tracer(error_every=2, error_all_buckets=True) as tracer:
            train(rank, trace(hook, tracer=tracer))
            tracer.flush()
            errors = [b.error.relative_l2 for b in tracer.buckets() if b.error is not None]
            assert tracer.anomalies() == [], tracer.anomalies()
        assert errors
        assert all(low <= error <= high for error in errors), (hook, errors)


@check
def a_nan_is_named(rank: int) -> None:
    """By its parameter, in debug mode, on the rank that has it."""
    with Tracer(error_every=0, debug=True) as tracer, torch.no_grad():
        parameters = [nn.Parameter(torch.zeros(8, 8, device="cuda")) for _ in range(2)]
        bucket = FakeBucket(parameters, 0, is_last=False)
        hook = trace(hooks.allreduce_hook, tracer=tracer)
        hook(None, bucket).wait()
        bucket.buffer()[70] = float("nan")
        hook(None, bucket).wait()
        torch.cuda.synchronize()
        tracer.flush()
        found = [(anomaly.kind, anomaly.parameter) for anomaly in tracer.anomalies()]
    assert ("nonfinite_gradient", "0.1") in found, found


CYCLES = 20_000_000


@staged
def spinning_hook(state: Any, bucket: Any) -> Iterator[Any]:
    """Keep the device busy for a known time before the collective, and half of it after."""
    torch.cuda._sleep(CYCLES)
    result = yield AllReduce(bucket.buffer())
    torch.cuda._sleep(CYCLES // 2)
    return result.div_(dist.get_world_size())


@staged(multi_round=True)
def two_round_hook(state: Any, bucket: Any) -> Iterator[Any]:
    """Issue a second collective when the first one is there."""
    first = yield AllReduce(bucket.buffer().clone())
    second = yield AllReduce(first)
    return bucket.buffer().copy_(second)


@check
def times_are_the_devices_and_in_order(rank: int) -> None:
    """Every bucket has device stages in order and no host stages; each round has its wire."""
    for hook, rounds in ((hooks.fp16_compress_hook, 1), (two_round_hook, 2)):
        with Tracer(error_every=0) as tracer:
            train(rank, trace(hook, tracer=tracer))
            tracer.flush()
            records, steps = tracer.buckets(), tracer.steps()
        assert len(steps) == STEPS
        assert all(s.clock == "device" and s.exposed_ns is not None for s in steps)
        for record in records:
            assert record.stages == ()
            assert record.device is not None
            stages = record.device.stages
            assert [s.name for s in stages].count("wire") == rounds
            edges = [record.device.ready_ns, *[s.end_ns for s in stages]]
            assert edges == sorted(edges)
            assert edges[-1] == record.device.done_ns > record.device.ready_ns


def profiled(rank: int, hook: Any, name: str) -> tuple[list[BucketRecord], list[float]]:
    """Return a warm step's buckets, and how long its kernels of that name took, us."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with Tracer(error_every=0) as tracer:
        ddp = model_of(rank, trace(hook, tracer=tracer))
        batch = torch.ones(16, 512, device="cuda")
        for _ in range(WARM):
            ddp(batch).sum().backward()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            ddp(batch).sum().backward()
            torch.cuda.synchronize()
        tracer.flush()
        buckets = [bucket for bucket in tracer.buckets() if bucket.step == WARM]
    return buckets, [
        event.time_range.elapsed_us()
        for event in profiler.events()
        if event.device_type == DeviceType.CUDA and name in event.name
    ]


@check
def stages_take_what_the_profiler_says(rank: int) -> None:
    """Compress and decompress, whose kernels are known, within 2 % or 100 us."""
    buckets, kernels_us = profiled(rank, spinning_hook, "spin")
    cut = (max(kernels_us) + min(kernels_us)) / 2
    for name, true in (
        ("compress", [spin for spin in kernels_us if spin > cut]),
        ("decompress", [spin for spin in kernels_us if spin <= cut]),
    ):
        spans = [bucket.device for bucket in buckets if bucket.device is not None]
        found = [s.end_ns - s.start_ns for span in spans for s in span.stages if s.name == name]
        assert len(found) == len(true) == len(buckets), (name, len(found), len(true))
        for one, other in zip(sorted(found), sorted(true), strict=True):
            assert abs(one / 1e3 - other) <= max(0.02 * other, 100), (name, one / 1e3, other)


@check
def the_wire_takes_what_the_profiler_says(rank: int) -> None:
    """NCCL's kernels: the wire stage is no shorter, and the sum not 20 % or 1 ms longer."""
    if dist.get_world_size() == 1:
        return  # NCCL starts no kernel of its own for one rank
    buckets, kernels_us = profiled(rank, hooks.allreduce_hook, "ncclDevKernel")
    true = sum(kernels_us)
    spans = [bucket.device for bucket in buckets if bucket.device is not None]
    found = sum(s.end_ns - s.start_ns for span in spans for s in span.stages if s.name == "wire")
    assert true <= found / 1e3 + 50, (true, found / 1e3)
    assert found / 1e3 <= 1.2 * true + 1000, (true, found / 1e3)


@staged
def holding_hook(state: Any, bucket: Any) -> Iterator[Any]:
    """Hold a tensor across the yield that only this generator has, and use it late."""
    held = bucket.buffer() * 3
    yield AllReduce(bucket.buffer())
    torch.cuda._sleep(CYCLES)
    return bucket.buffer().copy_(held)


@check
def memory_is_not_given_out_while_it_is_used(rank: int) -> None:
    """What is allocated right after the hook has returned must not be where it still reads."""
    parameters = [nn.Parameter(torch.zeros(1 << 20, device="cuda"))]
    bucket = FakeBucket(parameters, 0, is_last=True)
    for _ in range(5):
        bucket.buffer().fill_(2.0)
        torch.cuda.synchronize()
        future = holding_hook(None, bucket)
        junk = [torch.full((1 << 20,), -1.0, device="cuda") for _ in range(8)]
        assert bool((future.wait() == 6.0).all())
        del junk


class _Heavy(torch.autograd.Function):
    """Backward work that keeps the device busy after the hooks."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        square = torch.randn(4096, 4096, device="cuda")
        for _ in range(20):
            square = square @ square / 4096
        return gradients[0] + 0 * square.sum()


@check
def what_later_backward_hides_is_not_exposed(rank: int) -> None:
    """A trunk's kernels run on when all buckets are there."""
    with Tracer(error_every=0) as tracer:
        ddp = DistributedDataParallel(
            nn.Linear(64, 64).cuda(), device_ids=[torch.cuda.current_device()]
        )
        ddp.register_comm_hook(None, trace(hooks.fp16_compress_hook, tracer=tracer))
        for _ in range(4):
            x = torch.ones(8, 64, device="cuda", requires_grad=True)
            ddp(_Heavy.apply(x)).sum().backward()
        torch.cuda.synchronize()
        tracer.flush()
        assert [step.exposed_ns for step in tracer.steps()] == [0] * 4


def doubling_hook(state: Any, bucket: Any) -> Any:
    """Return a future that is done; a plain hook, which a graph can hold."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer().mul_(2))
    return future


@check
def a_graph_is_captured_while_the_drain_asks(rank: int) -> None:
    """In CUDA's default mode, which forbids all threads to ask for events; and it replays."""
    bucket = FakeBucket([nn.Parameter(torch.ones(64, device="cuda"))], 0, is_last=True)
    side, x = torch.cuda.Stream(), torch.ones(1024, device="cuda")
    with Tracer(error_every=0, interval_s=0.001) as tracer:
        hook = trace(doubling_hook, tracer=tracer)

        def step() -> None:
            with torch.cuda.stream(side):
                torch.cuda._sleep(20 * CYCLES)
                hook(None, bucket).wait()

        step()  # makes the events
        torch.cuda.synchronize()
        tracer.flush()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()  # on a stream that is not captured, and not done for a while
            for _ in range(20):
                x.add_(1)
                time.sleep(0.005)
        torch.cuda.synchronize()
        graph.replay()
        assert float(x[0]) == 21.0
        tracer.flush()
        assert tracer.losses() == {}
        assert len(tracer.steps()) == 2


@check
def a_captured_hook_is_not_looked_at(rank: int) -> None:
    """Its call is counted, and the graph has the hook's own work in it."""
    for options in LOOKS.values():
        with Tracer(**options) as tracer:
            bucket = FakeBucket([nn.Parameter(torch.ones(64, device="cuda"))], 0, is_last=False)
            bucket.buffer().fill_(1.0)
            hook = trace(doubling_hook, tracer=tracer)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                hook(None, bucket).wait()
            graph.replay()
            torch.cuda.synchronize()
            assert float(bucket.buffer()[0]) == 2.0
            tracer.flush()
            assert tracer.losses() == {"stamp_failed": 1}, tracer.losses()


class _Slow(nn.Linear):
    """A layer with which the device is busy for long, and the host is not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.cuda._sleep(200_000_000)
        return super().forward(x)


@check
def units_expose_what_the_computing_stream_waits_for(rank: int) -> None:
    """The first gather is waited for, the one behind a slow layer is not, and all is known."""
    size = dist.get_world_size()
    if size == 1 or not torch.__version__.startswith("2.13."):
        return  # FSDP communicates nothing then; of others it is not known where they wait
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2048, 2048), _Slow(2048, 2048), nn.Linear(2048, 2048)).cuda()
    mesh = init_device_mesh("cuda", (size,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    batch = torch.ones(16, 2048, device="cuda")
    with Tracer(error_every=0) as tracer:
        traced = fsdp.trace(model, tracer=tracer)
        for step in range(WARM + 4):
            dist.barrier()
            torch.cuda.synchronize()
            with no_synchronisation() if step >= WARM else nullcontext():
                model(batch).sum().backward()
        torch.cuda.synchronize()
        tracer.flush()
        traced.remove()
        assert tracer.losses() == {}, tracer.losses()
        assert all(one.exposed_ns is not None for one in tracer.steps())
        for one in tracer.buckets():
            assert one.device is not None
            assert one.exposed_ns is not None
            assert 0 <= one.exposed_ns <= one.device.done_ns - one.device.ready_ns
            if one.step >= WARM and str(one.unit) == "0 all-gather (forward)":
                assert one.exposed_ns > 0
            if one.step >= WARM and str(one.unit) == "2 all-gather (forward)":
                assert one.exposed_ns == 0


def run(rank: int, size: int, store: str, out: str, *names: str) -> None:
    """Run all checks, or those that are named, as one rank; write what failed."""
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group(
        "nccl",
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=120),
    )
    results: dict[str, str | None] = {}
    for name in names or CHECKS:
        results[name] = None
        began = time.monotonic()
        try:
            CHECKS[name](rank)
        except Exception:
            results[name] = traceback.format_exc()
        say(f"{name}: {time.monotonic() - began:.1f} s")
        Path(out).write_text(json.dumps(results))
    hooktrace.shutdown()


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
    sys.stdout.flush()
    os._exit(0)  # whatever a communicator still does
