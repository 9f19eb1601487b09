"""What the ranks do in ``test_probes.py``: hooks whose error is known, and hooks that are wrong."""

from __future__ import annotations

import atexit
import gc
import itertools
import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer, hooks
from hooktrace.ranks.private_group import PrivateGroup
from tests.distributed.harness import scenario
from tests.distributed.models import anomalies, backward, gradients, heard, make_ddp, train
from tests.versions import BROADCASTS_COMPLEX

STEPS = 20
CAP_MB = 0.004


def _train(
    hook: Callable[..., Any], rank: int, state: object = None, **options: Any
) -> tuple[Tracer, torch.Tensor]:
    """Train with a probe at every step that can be probed; the tracer is closed."""
    ddp = make_ddp(CAP_MB)
    seen = []
    with Tracer(error_every=1, **options) as tracer:
        hooktrace.instrument(ddp, hook, state, tracer=tracer)
        for step in range(STEPS):
            ddp.zero_grad()
            backward(ddp, rank, step)
            seen.append(gradients(ddp).clone())
            dist.barrier()  # hooks that do not communicate would let the ranks drift apart
        tracer.flush()
    return tracer, torch.stack(seen)


def known_errors(rank: int) -> dict[str, list[tuple[int, int, float, float, float, float]]]:
    """Return (step, bucket, relative L2, cosine, max absolute, flips) of each probe, by hook."""
    facts = {}
    for name, hook in (
        ("allreduce", hooks.allreduce_hook),
        ("torch's allreduce", default_hooks.allreduce_hook),
        ("fp16", hooks.fp16_compress_hook),
        ("torch's fp16", default_hooks.fp16_compress_hook),
        ("bf16", hooks.bf16_compress_hook),
        ("per tensor", hooks.quantization_pertensor_hook),
        ("noop", hooks.noop_hook),
    ):
        tracer, _ = _train(hook, rank)
        facts[name] = [
            (b.step, b.bucket, e.relative_l2, e.cosine, e.max_absolute, e.flipped_share)
            for _, buckets in tracer._recent.steps()
            for b in buckets
            if (e := b.error) is not None
        ]
        facts[f"{name}: anomalies"] = [a.kind for a in anomalies(tracer)]
    return facts


def untouched(rank: int) -> dict[str, bool]:
    """Return by hook whether probing every bucket of each step leaves the gradients as they are."""
    facts = {}
    for name, hook, state in (
        ("allreduce", hooks.allreduce_hook, lambda: None),
        ("fp16", hooks.fp16_compress_hook, lambda: None),
        ("powersgd", hooks.powerSGD_hook, lambda: hooks.PowerSGDState(None, 1, 2)),
        ("torch's", default_hooks.allreduce_hook, lambda: None),
    ):
        _, plain = _train(hook, rank, state(), error_all_buckets=False)
        reference = train(hook, rank, steps=STEPS, state=state(), bucket_cap_mb=CAP_MB)
        tracer, probed = _train(hook, rank, state(), error_all_buckets=True)
        found = sum(b.error is not None for _, bs in tracer._recent.steps() for b in bs)
        facts[name] = torch.equal(probed, reference) and torch.equal(plain, reference)
        facts[f"{name}: probes"] = found >= 5 * (STEPS - 11)
    for dtype in (torch.float64, torch.bfloat16):
        # One bucket whose result DDP reads as it is: a probe must not have written to it.
        seen = []
        for every in (0, 1):
            torch.manual_seed(0)
            ddp = DistributedDataParallel(nn.Linear(32, 32).to(dtype))
            with Tracer(error_every=every) as tracer:
                hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
                for step in range(STEPS):
                    ddp.zero_grad()
                    torch.manual_seed(rank + 2 * step)
                    ddp(torch.randn(4, 32, dtype=dtype)).square().sum().backward()
                    seen.append(gradients(ddp).clone())
        half = len(seen) // 2
        facts[str(dtype)] = all(map(torch.equal, seen[:half], seen[half:]))
        facts[f"{dtype}: probes"] = len(tracer.skews()) >= STEPS - 12
    return facts


def _hook(function: Callable[[torch.Tensor, Any], Any]) -> Callable[..., Any]:
    """Return an opaque hook of a function of the flat gradients and of the group's size."""

    def made(state: Any, bucket: Any) -> Any:
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(function(bucket.buffer(), dist.get_world_size()))
        return future

    made.__qualname__ = made.__name__ = "made"
    return made


def _summed(tensor: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(tensor)
    return tensor


def _clipped(tensor: torch.Tensor, longest: float) -> torch.Tensor:
    return tensor * min(1.0, longest / float(tensor.norm()))


def _of_rank_0(tensor: torch.Tensor, _: int) -> torch.Tensor:
    dist.broadcast(tensor, 0)
    return tensor


def _overflowing(tensor: torch.Tensor, size: int) -> torch.Tensor:
    return _summed(tensor.mul(1e5).half()).float() / size / 1e5


WRONG: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "not_averaged": lambda t, _: _summed(t),
    "averaged_twice": lambda t, n: _summed(t / n).div_(n),
    "wrong_scale": lambda t, n: _summed(t / (n + 1)),
    "wrong_scale of a loss": lambda t, n: _summed(t / n).div_(65536),
    "wrong_sign": lambda t, n: _summed(t / -n),
    "not_communicated": lambda t, _: t,
    "ranks_missing": _of_rank_0,
    "nonfinite_result": _overflowing,
    "replicas_diverge": lambda t, n: _summed(t / n).mul_(1 + 1e-6 * dist.get_rank()),
}

RIGHT: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "divided after": lambda t, n: _summed(t) / n,
    "clipped": lambda t, n: _summed(t / n).clamp_(-0.01, 0.01),
    "clipped to a short norm": lambda t, n: _clipped(_summed(t / n), 1e-5),
    "clipped by norm": lambda t, n: torch.nn.functional.normalize(_summed(t / n), dim=0),
    "signs": lambda t, n: _summed(t.sign()).div_(n).mul_(0.01),
    "sparse": lambda t, n: _summed(t * (t.abs() >= t.abs().median()) / n),
    "through float64": lambda t, n: _summed(t.double()).div_(n).float(),
}


def diagnoses(rank: int) -> dict[str, list[tuple[str, str]]]:
    """Return (kind, message) of the anomalies of wrong and of right hooks, some on alike ranks."""
    facts = {}
    for name, function in (*WRONG.items(), *RIGHT.items()):
        tracer, _ = _train(_hook(function), rank)
        facts[name] = [(a.kind, a.message) for a in anomalies(tracer)]
    for name in ("divided after", "not_averaged", "not_communicated"):
        tracer, _ = _train(_hook({**WRONG, **RIGHT}[name]), 0)  # all ranks have rank 0's data
        facts[f"{name}, alike"] = [(a.kind, a.message) for a in anomalies(tracer)]
    return facts


def bad_gradient(rank: int) -> list[tuple[str, str, str | None, int | None]]:
    """Return the anomalies of a model whose third layer gets a NaN on rank 1 at step 15."""
    ddp = make_ddp(CAP_MB)
    layer: Any = ddp.module[2]
    with Tracer(error_every=1, error_all_buckets=True) as tracer:
        hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        for step in range(18):
            ddp.zero_grad()
            torch.manual_seed(step)
            handle = None
            if rank == 1 and step == 15:
                handle = layer.bias.register_hook(lambda g: g * float("nan"))
            ddp(torch.randn(4, 32)).square().sum().backward()
            if handle is not None:
                handle.remove()
        return [(a.kind, a.message, a.parameter, a.rank) for a in anomalies(tracer)]


@scenario(apart=True)  # a rank that traces alone counts models that others do not
def schedules(rank: int) -> dict[str, Any]:
    """Return which (step, bucket) are probed, with pauses, two models, and ranks that do not trace.

    Each entry is a list, and must be the same on all ranks but for "one rank".
    """
    facts: dict[str, Any] = {}
    with Tracer(error_every=3) as tracer:
        first, second = make_ddp(CAP_MB), make_ddp(0.006)
        for ddp in (first, second):
            hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        for step in range(30):
            with first.no_sync():
                backward(first, rank, step)
            backward(first, rank, step)
            backward(second, rank, step)
        for name in ("model0", "model1"):
            facts[name] = _probed(tracer, name)
    traces = rank == 0
    ddp = make_ddp(CAP_MB)
    with Tracer(error_every=1) as tracer:
        hook = hooks.allreduce_hook
        ddp.register_comm_hook(None, hooktrace.trace(hook, tracer=tracer) if traces else hook)
        for step in range(20):
            backward(ddp, rank, step)
        facts["one rank"] = _probed(tracer, "model0")
    wishes: tuple[tuple[dict[str, Any], bool], ...] = (
        ({"error_every": 1 + rank}, False),
        ({"error_every": 1, "error_all_buckets": rank == 1}, False),
        ({"error_every": 1}, rank == 1),
    )
    with heard("is no longer measured") as facts["different wishes"]:
        # Other layers than before: of models that are alike rank 0 has traced one more.
        for layers, (options, local) in enumerate(wishes, 2):
            with Tracer(align_clocks=False, **options) as tracer:
                ddp = make_ddp(CAP_MB, layers)
                hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer, local=local)
                for step in range(20):
                    backward(ddp, rank, step)
                assert _probed(tracer, "model0") == []
    return facts


@mock.patch("hooktrace.probes.model._TIMEOUT", timedelta(seconds=2))
def paused(rank: int) -> tuple[list[tuple[int, int]], int, list[str]]:
    """Return what is probed, failures, and what is said where ranks pause longer than probes wait.

    Rank 1 at step 14 and rank 0 at step 40.
    """
    ddp = make_ddp(CAP_MB)
    with (
        heard("probe") as said,
        Tracer(error_every=1, error_all_buckets=True, align_clocks=False) as tracer,
    ):
        hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        for step in range(60):
            if (step, rank) in {(14, 1), (40, 0)}:
                time.sleep(4)
            ddp.zero_grad()
            backward(ddp, rank, step)
        tracer.flush()
        assert anomalies(tracer) == []
        return _probed(tracer, "model0"), tracer.losses().get("probe_failed", 0), said


@mock.patch("hooktrace.probes.model._TIMEOUT", timedelta(seconds=2))
def switched(rank: int) -> tuple[list[tuple[int, int]], int]:
    """Return what is probed, and failures, where ranks do not record some steps, each others."""
    ddp = make_ddp(CAP_MB, 7)
    with Tracer(error_every=2, align_clocks=False) as tracer:
        hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        for step in range(50):
            tracer.recording = not 15 + 3 * rank <= step < 20 + 2 * rank
            ddp.zero_grad()
            backward(ddp, rank, step)
        tracer.flush()
        return _probed(tracer, "model0"), tracer.losses().get("probe_failed", 0)


def paused_apart(rank: int) -> dict[str, list[int]]:
    """Return the numbers of the last steps where ranks pause some calls apart, in four ways.

    From before the first step on, to the middle of one; while DDP rebuilds its buckets; in a static
    graph's first pass, whose buckets do not tell which they are; and where rank 1 has less data,
    and no backward passes of its own at the end.
    """
    facts = {}
    for name, off, options in (
        ("first", range(-1, 9 + rank), {}),
        ("rebuilt", range(1 + rank, 12 + 3 * rank), {}),
        ("static", range(rank, 12 - rank), {"static_graph": True}),
        ("joined", range(60 + 9 * rank, 100 - 3 * rank), {}),
    ):
        ddp = make_ddp(CAP_MB, **options)
        with Tracer(error_every=0, align_clocks=False) as tracer:
            tracer.recording = -1 not in off
            hooktrace.instrument(ddp, _pausing(tracer, off), tracer=tracer)
            with ddp.join(enable=name == "joined"):
                for step in range(7 if (name, rank) == ("joined", 1) else 40):
                    backward(ddp, rank, step)
            tracer.flush()
            facts[name] = [step.step for step in tracer.steps() if step.complete][-10:]
    return facts


def _pausing(tracer: Tracer, off: range) -> Callable[..., Any]:
    """Return a hook that has the tracer paused after so many of its calls."""
    calls = itertools.count()

    def pausing(state: Any, bucket: Any) -> Any:
        tracer.recording = next(calls) not in off
        return default_hooks.allreduce_hook(state, bucket)

    return pausing


def uncollected(rank: int) -> tuple[int, float]:
    """Return how many probes of a 4 MiB bucket there were with the GC off, and MiB that they kept.

    The hook's results are memory of their own.
    """
    ddp = DistributedDataParallel(nn.Linear(1024, 1024, bias=False))

    def copied(state: Any, bucket: Any) -> Any:
        return default_hooks.allreduce_hook(state, bucket).then(lambda f: f.value().clone())

    gc.disable()
    try:
        with Tracer(error_every=1, align_clocks=False) as tracer:
            hooktrace.instrument(ddp, copied, tracer=tracer)
            resident = []
            for step in range(75):
                ddp.zero_grad()
                backward(ddp, rank, step, width=1024)
                if step in {24, 74}:
                    tracer.flush()
                    resident.append(int(Path("/proc/self/statm").read_text().split()[1]))
            kept = (resident[1] - resident[0]) * os.sysconf("SC_PAGE_SIZE") / 2**20
            return len(_probed(tracer, "model0")), kept
    finally:
        gc.enable()


def forked(rank: int) -> list[tuple[int, int]]:
    """Return what is probed where a child that rank 0 forks at step 14 ends as a process does."""
    ddp = make_ddp(CAP_MB)
    with Tracer(error_every=1, align_clocks=False) as tracer:
        hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        for step in range(STEPS):
            if rank == 0 and step == 14:
                child = os.fork()
                if not child:
                    signal.alarm(20)
                    atexit._run_exitfuncs()
                    os._exit(0)
                assert os.waitpid(child, 0) == (child, 0)
            backward(ddp, rank, step)
        return _probed(tracer, "model0")


def sixteen_bits(rank: int) -> list[tuple[float | None, float]]:
    """Return (measured, true) errors of an all-reduce in bfloat16; the true ones by float64."""
    true = {}

    def exact(state: Any, bucket: Any) -> Any:
        buffer = bucket.buffer()
        average = _summed(buffer.double()) / dist.get_world_size()
        result = _summed(buffer.div_(dist.get_world_size()))
        true[len(true)] = ((result.double() - average).norm() / average.norm()).item()
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(result)
        return future

    ddp = DistributedDataParallel(nn.Linear(32, 33).bfloat16())
    with Tracer(error_every=1) as tracer:
        hooktrace.instrument(ddp, exact, tracer=tracer)
        for step in range(STEPS):
            ddp.zero_grad()
            torch.manual_seed(rank + 2 * step)
            ddp(torch.randn(4, 32, dtype=torch.bfloat16)).square().sum().backward()
        errors = {b.step: b.error.relative_l2 for b in tracer.buckets() if b.error is not None}
    return [(error, true[step]) for step, error in errors.items()]


def joined(rank: int) -> dict[str, Any]:
    """Return (probed calls, shadows among them) when rank 1 runs out of data at step 14 of 20."""
    ddp = make_ddp(CAP_MB)
    with Tracer(error_every=1) as tracer:
        hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        with ddp.join():
            for step in range(14 if rank == 1 else 20):
                backward(ddp, rank, step)
        found = [(b.step, b.bucket, b.shadow) for b in tracer.buckets() if b.error is not None]
        return {"probed": [f[:2] for f in found], "shadows": sum(s for *_, s in found)}


def failing_probed(rank: int) -> tuple[str, list[str | None]]:
    """Return the error of a hook that fails at a probed step, and what the records say."""
    calls = [0]

    def fails_late(state: Any, bucket: Any) -> Any:
        calls[0] += 1
        if calls[0] > 80:
            raise ValueError("late boom")
        return default_hooks.allreduce_hook(state, bucket)

    message = "nothing"
    with Tracer(error_every=1, error_all_buckets=True) as tracer:
        ddp = make_ddp(CAP_MB)
        ddp.register_comm_hook(None, hooktrace.trace(fails_late, tracer=tracer))
        try:
            for step in range(20):
                backward(ddp, rank, step)
        except Exception as error:
            message = str(error)
        tracer.flush()
        exceptions = [a.message for a in anomalies(tracer)]
    return message, exceptions


def alarms(rank: int) -> dict[str, Any]:
    """Return what ``on_anomaly`` does about a sum: (raised, logged, recorded, still records)."""
    facts = {}
    for reaction in ("record", "warn", "raise"):
        raised = "nothing"
        ddp = make_ddp(CAP_MB)
        with (
            heard("hook 'made', bucket") as said,
            Tracer(error_every=1, on_anomaly=reaction, align_clocks=False) as tracer,  # type: ignore[arg-type]
        ):
            hooktrace.instrument(ddp, _hook(WRONG["not_averaged"]), tracer=tracer)
            try:
                for step in range(STEPS):
                    ddp.zero_grad()
                    backward(ddp, rank, step)
                    tracer.flush()
            except hooktrace.AnomalyError as error:
                raised = str(error)
            recorded = [a.kind for a in anomalies(tracer)]
            still = tracer.recording
        facts[reaction] = raised, said, recorded, still
        dist.barrier()
    return facts


def residuals(rank: int) -> list[tuple[bool, float]]:
    """Return (the measured norm is that of the state, the norm) of PowerSGD's last probe."""
    facts = []
    for module, hook in (
        (hooks, hooks.powerSGD_hook),
        (powerSGD_hook, _waited(powerSGD_hook.powerSGD_hook)),
    ):
        state = module.PowerSGDState(None, 1, 2, min_compression_rate=0.5)
        ddp = DistributedDataParallel(nn.Linear(32, 32, bias=False))
        with Tracer(error_every=1) as tracer:
            hooktrace.instrument(ddp, hook, state, tracer=tracer)
            for step in range(STEPS):
                ddp.zero_grad()
                backward(ddp, rank, step)
            error = tracer.buckets()[-1].error
        assert error is not None
        assert error.residual_l2 is not None
        own = state.error_dict[0].double().norm().item()
        facts.append((abs(own - error.residual_l2) < 1e-9 * own, own))
    return facts


def subgroups(rank: int) -> dict[str, tuple[list[float | None], list[str]]]:
    """Return (errors, anomalies) of two models on pairs of ranks whose hook closes over its group.

    With ``instrument``, which knows the model's group, and with ``trace``, which cannot.
    """
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = groups[rank // 2]

    def own_group(state: Any, bucket: Any) -> Any:
        work = dist.all_reduce(bucket.buffer().div_(2), group=mine, async_op=True)
        return work.get_future().then(lambda f: f.value()[0])

    facts = {}
    for way in ("instrument", "trace"):
        ddp = make_ddp(CAP_MB, process_group=mine)
        with Tracer(error_every=1) as tracer:
            if way == "instrument":
                hooktrace.instrument(ddp, own_group, tracer=tracer)
            else:
                ddp.register_comm_hook(None, hooktrace.trace(own_group, tracer=tracer))
            for step in range(STEPS):
                ddp.zero_grad()
                backward(ddp, rank, step)
                dist.barrier()
            errors = [b.error.relative_l2 for b in tracer.buckets() if b.error is not None]
            facts[way] = errors, [a.kind for a in anomalies(tracer)]
    return facts


def drifted(rank: int) -> int:
    """Return the step after which ranks that meet at steps 10 and 17 begin to probe."""
    group = PrivateGroup("drifted", rank, dist.get_world_size(), timedelta(seconds=30))
    return group.latest(10 + 7 * rank)


def odd_gradients(rank: int) -> dict[str, tuple[bool, int, list[str]]]:
    """Return (gradients are DDP's, steps, anomalies) of sparse and of complex models, traced."""
    models: dict[str, Callable[[], nn.Module]] = {
        "sparse": lambda: nn.Embedding(10, 8, sparse=True),
        "complex": lambda: nn.Linear(8, 8, dtype=torch.complex64),
    }
    inputs: dict[str, Callable[[], torch.Tensor]] = {
        "sparse": lambda: torch.randint(0, 10, (4,)),
        "complex": lambda: torch.randn(4, 8, dtype=torch.complex64),
    }
    if not BROADCASTS_COMPLEX:
        del models["complex"]
    facts = {}
    for name, make in models.items():
        seen = []
        with Tracer(error_every=1) as tracer:
            for traced in (False, True):
                torch.manual_seed(0)
                ddp = DistributedDataParallel(make())
                hook = default_hooks.allreduce_hook
                ddp.register_comm_hook(
                    None, hooktrace.trace(hook, tracer=tracer) if traced else hook
                )
                for step in range(STEPS):
                    ddp.zero_grad()
                    torch.manual_seed(1000 * rank + step)
                    ddp(inputs[name]()).abs().sum().backward()
                (parameter, *_) = ddp.parameters()
                assert parameter.grad is not None
                seen.append(parameter.grad.to_dense() if name == "sparse" else parameter.grad)
            kinds = [a.kind for a in anomalies(tracer)]
            facts[name] = torch.equal(*seen), len(tracer.steps()), kinds
    return facts


def _waited(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return torch's PowerSGD as it runs on gloo: waited for before the next bucket."""

    def waited(state: Any, bucket: Any) -> Any:
        future = hook(state, bucket)
        future.wait()
        return future

    return waited


def _probed(tracer: Tracer, model: str) -> list[tuple[int, int]]:
    return [(b.step, b.bucket) for b in tracer.buckets(model) if b.error is not None]


def powersgd_against_svd(rank: int) -> list[tuple[float, float]]:
    """Return (measured error, an SVD's error of that rank) of one matrix, without feedback."""
    found = []
    for columns in (1, 2, 4):
        torch.manual_seed(0)
        ddp = DistributedDataParallel(nn.Linear(48, 64, bias=False))
        state = hooks.PowerSGDState(
            None, columns, 2, use_error_feedback=False, warm_start=True, min_compression_rate=0.5
        )
        reference = DistributedDataParallel(nn.Linear(48, 64, bias=False))
        reference.load_state_dict(ddp.state_dict())
        with Tracer(error_every=1) as tracer:
            hooktrace.instrument(ddp, hooks.powerSGD_hook, state, tracer=tracer)
            for _ in range(20):
                for model in (ddp, reference):
                    model.zero_grad()
                    torch.manual_seed(rank)
                    model(torch.randn(32, 48)).square().sum().backward()
            errors = [b.error for b in tracer.buckets() if b.error is not None]
        values = torch.linalg.svdvals(gradients(reference).view(64, 48).double())
        best = (values[columns:].square().sum() / values.square().sum()).sqrt().item()
        last = errors[-1].relative_l2
        found.append((-1.0 if last is None else last, best))
    return found
