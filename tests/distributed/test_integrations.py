"""Models of scripts that do not name hooktrace: bits, hooks, copies, names and records.

Beside the same models without hooktrace.  Three of four ranks train in a group of their own, since
dividing and multiplying by the inverse differ from three ranks on.
"""

from __future__ import annotations

import copy
import functools
import gc
import io
import itertools
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import _apply_optimizer_in_backward
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _MixedPrecision

import hooktrace
from hooktrace import hooks
from hooktrace.integrations import models, start
from tests.distributed.harness import on
from tests.distributed.models import heard
from tests.distributed.test_run import ANY
from tests.integrations.rows import shows
from tests.versions import HOOKS_GROUPS, MIXES_PRECISION

pytestmark = pytest.mark.slow

WIDTH = 40


@contextmanager
def traced() -> Iterator[None]:
    """Trace the models that are made within, into memory."""
    os.environ["HOOKTRACE_RECORD_DIR"] = ""
    os.environ["HOOKTRACE_ERROR_EVERY"] = "3"
    start.begin()
    try:
        yield
    finally:
        start.end()
        hooktrace.default_tracer().close()
        del os.environ["HOOKTRACE_RECORD_DIR"], os.environ["HOOKTRACE_ERROR_EVERY"]


def both(run: Callable[[], Any]) -> tuple[Any, Any]:
    """Return what a run gives without hooktrace and with it."""
    stock = run()
    with traced():
        return stock, run()


class Branches(nn.Module):
    """A few layers, of which a step may leave one out."""

    def __init__(self, dtype: torch.dtype, sparse: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = (nn.Linear(WIDTH, WIDTH, dtype=dtype) for _ in range(5))
        self.layers = nn.ModuleList(layers)
        self.dtype = dtype
        self.rows = nn.Embedding(50, WIDTH, sparse=True) if sparse else None

    def forward(self, x: torch.Tensor, left_out: int = -1) -> torch.Tensor:
        if self.rows is not None:
            x = x + self.rows(x[:, :3].abs().long() % 50).sum(1)
        for i, layer in enumerate(self.layers):
            x = x if i == left_out else layer(x)
        return x


def inputs(step: int) -> torch.Tensor:
    torch.manual_seed(1000 * dist.get_rank() + step)
    return torch.randn(4, WIDTH)


def train(
    group: dist.ProcessGroup | None,
    *,
    dtype: torch.dtype = torch.float32,
    set_to_none: bool = True,
    accumulate: bool = False,
    unused: bool = False,
    sparse: bool = False,
    in_backward: bool = False,
    prepare: Callable[[DistributedDataParallel, int], object] = lambda ddp, step: None,
    **options: Any,
) -> torch.Tensor:
    """Train some steps; return all gradients and parameters of all steps."""
    module = Branches(dtype, sparse)
    if in_backward:
        parameters = list(module.parameters())
        _apply_optimizer_in_backward(torch.optim.SGD, parameters, {"lr": 0.01})
    ddp = DistributedDataParallel(module, process_group=group, bucket_cap_mb=0.01, **options)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    seen = []
    for step in range(6):
        prepare(ddp, step)
        optimizer.zero_grad(set_to_none=set_to_none)
        if accumulate:
            with ddp.no_sync():
                ddp(inputs(step + 100).to(dtype)).square().sum().backward()
        left_out = step % 4 if unused else -1
        loss = ddp(inputs(step).to(dtype), left_out).square().mean()
        loss.backward()
        for p in ddp.parameters():
            if p.grad is not None:
                seen.append(p.grad.detach().to_dense().flatten().double())
            elif not in_backward:
                seen.append(torch.zeros(p.numel(), dtype=torch.double))
        if not in_backward:
            optimizer.step()
    seen += [p.detach().flatten().double() for p in ddp.parameters()]
    return torch.cat(seen)


def group_of_three() -> dist.ProcessGroup | None:
    """Return the group of the first three ranks; ``None`` on the fourth.  Collective."""
    group = dist.new_group([0, 1, 2])
    return group if dist.get_rank() < 3 else None


VARIANTS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "fp16": {"dtype": torch.float16},
    "bf16": {"dtype": torch.bfloat16},
    "fp64": {"dtype": torch.float64},
    "bucket view": {"gradient_as_bucket_view": True},
    "bucket view, kept": {"gradient_as_bucket_view": True, "set_to_none": False},
    "kept": {"set_to_none": False},
    "unused": {"find_unused_parameters": True, "unused": True},
    "unused, bucket view, kept": {
        "find_unused_parameters": True,
        "unused": True,
        "gradient_as_bucket_view": True,
        "set_to_none": False,
    },
    "no_sync": {"accumulate": True},
    "no_sync, bucket view, kept": {
        "accumulate": True,
        "gradient_as_bucket_view": True,
        "set_to_none": False,
    },
    "static": {"static_graph": True},
    "static, bucket view": {"static_graph": True, "gradient_as_bucket_view": True},
    "sparse": {"sparse": True},
    "in backward": {"in_backward": True},
    "in backward, bucket view": {"in_backward": True, "gradient_as_bucket_view": True},
}


def on_a_cpu(scenario: Callable[[int], None]) -> Callable[[int], None]:
    """Give DDP's optimisers in backward and mixed precision streams, where there is no device.

    A build for CPUs has no current one, and one for CUDA can make none without a driver.
    """

    @functools.wraps(scenario)
    def on_cpu_streams(rank: int) -> None:
        with (
            mock.patch.object(torch.accelerator, "current_stream", mock.Mock()),
            mock.patch.object(torch, "Stream", partial(torch.Stream, "cpu")),
        ):
            scenario(rank)

    return on_cpu_streams


@on(4)
@on_a_cpu
def test_without_a_hook_every_bit_is_ddps(rank: int) -> None:
    """On three ranks: dtypes, bucket views, unused and sparse gradients, torch's own hooks."""
    group = group_of_three()
    if group is None:
        return
    for name, options in VARIANTS.items():
        assert torch.equal(*both(partial(train, group, **options))), name


def _step_counts(run: Callable[[], Any]) -> list[tuple[str, str, int]]:
    """Return (model, hook, steps) of what a run traced."""
    with traced():
        run()
        tracer = hooktrace.default_tracer()
        steps = tracer.steps()
        names = dict.fromkeys((s.model, s.hook) for s in steps)
        return [(m, h, sum(s.model == m for s in steps)) for m, h in names]


@on(4)
def test_ranks_that_run_out_of_data(rank: int) -> None:
    """``join`` divides by all ranks, or by those that are left; and steps after it."""
    group = group_of_three()
    if group is None:
        return
    for initial, view in itertools.product((True, False), repeat=2):
        assert torch.equal(*both(partial(_join, group, rank, initial, view))), (initial, view)


def _join(group: Any, rank: int, initial: bool, view: bool) -> torch.Tensor:
    ddp = DistributedDataParallel(
        Branches(torch.float32), process_group=group, bucket_cap_mb=0.01,
        gradient_as_bucket_view=view,
    )  # fmt: skip
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    seen = []

    def step(number: int) -> None:
        optimizer.zero_grad(set_to_none=number % 2 == 0)
        ddp(inputs(number)).square().mean().backward()
        seen.extend(p.grad.flatten().clone() for p in ddp.parameters() if p.grad is not None)
        optimizer.step()

    with Join([ddp], divide_by_initial_world_size=initial):
        for number in range(2 + 2 * rank):
            step(number)
    for number in range(3):
        step(number)
    return torch.cat(seen)


def third(state, bucket):  # DDP compares annotations by identity, and here they are strings
    group = state if isinstance(state, dist.ProcessGroup) else dist.group.WORLD
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    return work.get_future().then(lambda f: f.value()[0].mul_(0.3))


def _registering(
    state: Any, kind: str, when: tuple[int, list[Any]], ddp: DistributedDataParallel, step: int
) -> None:
    """Register in a step, then once more, and note what torch says."""
    at, said = when
    if step != at:
        return
    if kind == "plain":
        ddp.register_comm_hook(state, third)
    elif kind == "ours":
        ddp.register_comm_hook(state, hooks.fp16_compress_hook)
    elif kind == "instrument":
        hooktrace.instrument(ddp, hooks.fp16_compress_hook, state, model="mine")
    elif kind != "none":
        ddp._register_builtin_comm_hook(getattr(dist.BuiltinCommHookType, kind))
    said.append([hook.__qualname__ for hook, _ in ddp._comm_hooks])
    for again in (
        lambda: ddp.register_comm_hook(state, default_hooks.allreduce_hook),
        lambda: ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE),
        lambda: ddp.register_comm_hook(state, misannotated),
        lambda: ddp.register_comm_hook(state, default_hooks.bf16_compress_hook),
        lambda: ddp.register_comm_hook(state, 3),  # type: ignore[arg-type]
    ):
        try:
            again()
        except Exception as error:
            said.append((type(error).__name__, str(error).split("\n")[0]))
    said.append(len(ddp._comm_hooks))
    said.append(ddp._get_ddp_logging_data().get("comm_hook"))


@on(2)
def test_the_average_is_not_missed_where_a_hook_took_its_place(rank: int) -> None:
    """It is DDP that calls another one now.

    The cyclic garbage collector is off: nothing else may keep the average from being missed.
    """
    gc.disable()
    try:
        with traced():
            ddp = DistributedDataParallel(nn.Linear(WIDTH, WIDTH))
            ddp(inputs(0)).sum().backward()
            ddp.register_comm_hook(None, third)
            for step in range(120):
                ddp(inputs(step)).sum().backward()
            found = {a.kind for a in hooktrace.default_tracer().anomalies()}
    finally:
        gc.enable()
    assert "not_synchronised" not in found


class OwnError(Exception):
    """Of a hook in a script."""


def raising(state, bucket):  # as third
    """A hook that fails where it is called."""
    raise OwnError("for a reason")


@on(2)
def test_what_a_hook_raises(rank: int) -> None:
    """It leaves backward as it is, not as hooktrace's error."""

    def run() -> tuple[str, str]:
        try:
            train(None, prepare=_first(raising, None))
        except Exception as error:
            return type(error).__name__, str(error)
        return "", ""

    assert both(run) == (("OwnError", "for a reason"), ("OwnError", "for a reason"))


def misannotated(state: object, bucket: int) -> Any:
    """DDP refuses it."""


@shows(ANY, "hooks as the script registers them")
@on(4)
@on_a_cpu
def test_registrations_are_torchs(rank: int) -> None:
    """Early, late or builtin: DDP's bits, and its own errors, lists and names."""
    group = group_of_three()
    if group is None:
        return
    for kind in ("plain", "ours", "instrument", "ALLREDUCE", "FP16_COMPRESS"):
        for at in (0, 1, 3):
            words: list[list[Any]] = []

            def run(kind: str = kind, at: int = at, words: list[list[Any]] = words) -> torch.Tensor:
                words.append([])
                prepare = partial(_registering, group, kind, (at, words[-1]))
                return train(group, prepare=prepare)

            assert torch.equal(*both(run)), (kind, at)
            assert words[0] == words[1], (kind, at)
            # So that the comparison is of something: a second registration is refused.
            assert "can only be called once" in words[0][1][1]
    if MIXES_PRECISION:
        stock, ours = both(partial(_mixed_precision, group))
        assert stock == ours


def _mixed_precision(group: Any) -> list[Any]:
    """Return what torch says of a model that registers in its constructor, and of a second hook.

    A build without a device makes such a model and cannot run it.
    """
    ddp = DistributedDataParallel(
        Branches(torch.float32), process_group=group,
        mixed_precision=_MixedPrecision(torch.bfloat16, torch.float32),
    )  # fmt: skip
    said: list[Any] = []
    _registering(group, "none", (0, said), ddp, 0)
    return said


@on(4)
@on_a_cpu
def test_what_is_recorded(rank: int) -> None:
    """The average, then a late hook under a name of its own; each model; torch's own hooks."""
    group = group_of_three()
    if group is None:
        return
    late = partial(_registering, group, "plain", (3, []))
    average = ("Branches", "ddp_allreduce")
    assert _step_counts(partial(train, group)) == [(*average, 6)]
    found = _step_counts(partial(train, group, prepare=late))
    assert found == [(*average, 3), ("Branches#2", "third", 3)]
    found = _step_counts(lambda: (train(group), train(group, dtype=torch.float64)))
    assert [steps for _, _, steps in found] == [6, 6]
    found = _step_counts(partial(train, group, in_backward=True))
    assert found == [("Branches", "apply_optim_in_backward_hook", 6)]


@on(4)
def test_instrument_without_a_hook(rank: int) -> None:
    """The public way to the same; it leaves nothing on the parameters, which outlive DDP."""
    group = group_of_three()
    if group is None:
        return
    modules: list[Any] = []
    with hooktrace.Tracer() as tracer:

        def prepare(ddp: DistributedDataParallel, step: int) -> None:
            if step == 0:
                hooktrace.instrument(ddp, tracer=tracer)
                modules.append(ddp.module)

        for name in ("fp32", "bf16", "bucket view, kept", "unused, bucket view, kept"):
            stock = train(group, **VARIANTS[name])
            assert torch.equal(stock, train(group, prepare=prepare, **VARIANTS[name])), name
        gc.collect()
        assert len(tracer.steps()) == 4 * 6
    left = [p._post_accumulate_grad_hooks for m in modules for p in m.parameters()]
    assert not any(left)


@on(2)
def test_copies_are_traced_and_said_to_have_lost_their_hook(rank: int) -> None:
    """A deep copy and an unpickled model train as torch lets them."""
    models._copied.clear()
    with heard("lost its communication hook") as said:
        for how in ("deepcopy", "pickle"):
            stock = _train_copy(how)
            with traced():
                assert torch.equal(stock, _train_copy(how)), how
                assert "ddp_allreduce" in {s.hook for s in hooktrace.default_tracer().steps()}
    assert len(said) == 1
    ddp = DistributedDataParallel(Branches(torch.float32))
    with hooktrace.Tracer() as tracer:
        hooktrace.instrument(ddp, tracer=tracer)
        copies = [copy.deepcopy(ddp), pickle.loads(pickle.dumps(ddp))]
        assert [len(other._comm_hooks) for other in copies] == [int(not HOOKS_GROUPS)] * 2
    hooktrace.default_tracer().close()


def _train_copy(how: str) -> torch.Tensor:
    ddp = DistributedDataParallel(Branches(torch.float32), bucket_cap_mb=0.01)
    ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    ddp(inputs(0)).square().mean().backward()
    if how == "deepcopy":
        other = copy.deepcopy(ddp)
    else:
        buffer = io.BytesIO()
        torch.save(ddp, buffer)
        buffer.seek(0)
        other = torch.load(buffer, weights_only=False)
    assert len(other._comm_hooks) == 1
    seen = []
    for step in range(3):
        other.zero_grad()
        other(inputs(step)).square().mean().backward()
        seen += [p.grad.flatten().clone() for p in other.parameters() if p.grad is not None]
    return torch.cat(seen)


def _first(hook: Any, state: Any) -> Callable[[DistributedDataParallel, int], None]:
    def prepare(ddp: DistributedDataParallel, step: int) -> None:
        if step == 0:
            ddp.register_comm_hook(state, hook)

    return prepare


@on(2)
def test_alone(rank: int) -> None:
    """A group of one rank has nothing to average."""
    groups = [dist.new_group([r]) for r in range(dist.get_world_size())]
    assert torch.equal(*both(partial(train, groups[rank])))
