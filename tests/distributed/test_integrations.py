"""Models of scripts that do not name hooktrace: bits, hooks, copies, names and records.

Beside the same models without hooktrace.  Three of four ranks train in a group of their own, since
dividing and multiplying by the inverse differ from three ranks on.
"""

from __future__ import annotations

import copy
import functools
import io
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
import torch.distributed.fsdp  # or what begins would wait for it
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import _apply_optimizer_in_backward
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import hooks
from hooktrace.integrations import models, patches, sharded, start
from tests.distributed.harness import on
from tests.distributed.models import heard
from tests.distributed.test_run import ANY
from tests.integrations.rows import shows

pytestmark = pytest.mark.slow

WIDTH = 40

KNOW = models.know

Prepare = Callable[[DistributedDataParallel, int], object]
"""Called with a model before each of its steps."""


@contextmanager
def traced() -> Iterator[None]:
    """Trace the models that are made within, into memory.

    What has begun goes on: of models that this process makes afterwards nobody is to know.
    """
    settings = {"HOOKTRACE_RECORD_DIR": "", "HOOKTRACE_ERROR_EVERY": "3"}
    vars(models)["know"] = lambda _: None
    with (
        mock.patch.dict(os.environ, settings),
        mock.patch.object(models, "know", KNOW),
        mock.patch.object(sharded, "watch"),
    ):
        start.begin()
        try:
            yield
        finally:
            hooktrace.default_tracer().close()


def both(run: Callable[[], Any]) -> tuple[Any, Any]:
    """Return what a run gives without hooktrace and with it."""
    stock = run()
    with traced():
        return stock, run()


class Branches(nn.Module):
    """A few layers, of which a step may leave one out."""

    def __init__(self, dtype: torch.dtype = torch.float32, sparse: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = (nn.Linear(WIDTH, WIDTH, dtype=dtype) for _ in range(5))
        self.layers = nn.ModuleList(layers)
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
    prepare: Prepare = lambda ddp, step: None,
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
        ddp(inputs(step).to(dtype), left_out).square().mean().backward()
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


VIEW = {"gradient_as_bucket_view": True}
KEPT = {**VIEW, "set_to_none": False}
UNUSED = {"find_unused_parameters": True, "unused": True}
VARIANTS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "fp16": {"dtype": torch.float16},
    "bf16": {"dtype": torch.bfloat16},
    "bucket view": VIEW,
    "bucket view, kept": KEPT,
    "kept": {"set_to_none": False},
    "unused": UNUSED,
    "unused, bucket view, kept": {**UNUSED, **KEPT},
    "no_sync": {"accumulate": True},
    "no_sync, bucket view, kept": {"accumulate": True, **KEPT},
    "static": {"static_graph": True},
    "static, bucket view": {"static_graph": True, **VIEW},
    "sparse": {"sparse": True},
    "in backward, bucket view": {"in_backward": True, **VIEW},
}


def of_three(scenario: Callable[[dist.ProcessGroup], None]) -> Callable[[int], None]:
    """Run a scenario on three ranks; optimisers in backward want streams, also on a CPU."""

    @functools.wraps(scenario)
    def on_three(rank: int) -> None:
        group = group_of_three()
        with (
            mock.patch.object(torch.accelerator, "current_stream", mock.Mock()),
            mock.patch.object(torch, "Stream", partial(torch.Stream, "cpu")),
        ):
            if group is not None:
                scenario(group)

    return on_three


@on(4)
@of_three
def test_without_a_hook_every_bit_is_ddps(group: dist.ProcessGroup) -> None:
    """On three ranks: dtypes, bucket views, unused and sparse gradients; and in a group of one."""
    for name, options in VARIANTS.items():
        assert torch.equal(*both(partial(train, group, **options))), name
    alone = dist.new_group([dist.get_rank()], use_local_synchronization=True)
    assert torch.equal(*both(partial(train, alone)))


@on(4)
@of_three
def test_ranks_that_run_out_of_data(group: dist.ProcessGroup) -> None:
    """``join`` divides by all ranks, or by those that are left; and steps after it."""
    for initial, view in itertools.product((True, False), repeat=2):
        assert torch.equal(*both(partial(_join, group, initial, view))), (initial, view)


def _join(group: dist.ProcessGroup, initial: bool, view: bool) -> torch.Tensor:
    ddp = DistributedDataParallel(
        Branches(), process_group=group, bucket_cap_mb=0.01, gradient_as_bucket_view=view
    )
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    seen = []

    def step(number: int) -> None:
        optimizer.zero_grad(set_to_none=number % 2 == 0)
        ddp(inputs(number)).square().mean().backward()
        seen.extend(p.grad.flatten().clone() for p in ddp.parameters() if p.grad is not None)
        optimizer.step()

    with Join([ddp], divide_by_initial_world_size=initial):
        for number in range(2 + 2 * dist.get_rank()):
            step(number)
    for number in range(3):
        step(number)
    return torch.cat(seen)


def third(state, bucket):  # DDP compares annotations by identity, and here they are strings
    group = state if isinstance(state, dist.ProcessGroup) else dist.group.WORLD
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    return work.get_future().then(lambda f: f.value()[0].mul_(0.3))


def _registering(state: Any, kind: str, at: int, said: list[Any]) -> Prepare:
    """Return what registers in a step, then more than once, and notes what torch says."""

    def prepare(ddp: DistributedDataParallel, step: int) -> None:
        if step != at:
            return
        if kind == "plain":
            ddp.register_comm_hook(state, third)
        elif kind == "instrument":
            hooktrace.instrument(ddp, hooks.fp16_compress_hook, state, model="mine")
        else:
            ddp._register_builtin_comm_hook(getattr(dist.BuiltinCommHookType, kind))
        said.append([hook.__qualname__ for hook, _ in ddp._comm_hooks])
        for again in (
            lambda: ddp.register_comm_hook(state, default_hooks.allreduce_hook),
            lambda: ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE),
            lambda: ddp.register_comm_hook(state, default_hooks.bf16_compress_hook),
            lambda: ddp.register_comm_hook(state, 3),  # type: ignore[arg-type]
        ):
            try:
                again()
            except Exception as error:
                said.append((type(error).__name__, str(error).split("\n")[0]))
        said.extend([len(ddp._comm_hooks), ddp._get_ddp_logging_data().get("comm_hook")])

    return prepare


@shows(ANY, "hooks as the script registers them")
@on(4)
@of_three
def test_registrations_are_torchs(group: dist.ProcessGroup) -> None:
    """Early, late or builtin: DDP's bits, and its own errors, lists and names."""
    for kind, at in itertools.product(("plain", "instrument", "FP16_COMPRESS"), (0, 1, 3)):
        words: list[list[Any]] = []

        def run(kind: str = kind, at: int = at, words: list[list[Any]] = words) -> torch.Tensor:
            words.append([])
            return train(group, prepare=_registering(group, kind, at, words[-1]))

        assert torch.equal(*both(run)), (kind, at)
        assert words[0] == words[1], (kind, at)
        # So that the comparison is of something: a second registration is refused.
        assert "can only be called once" in words[0][1][1]


def _step_counts(run: Callable[[], Any]) -> list[tuple[str, str, int]]:
    """Return (model, hook, steps) of what a run traced."""
    with traced():
        run()
        tracer = hooktrace.default_tracer()
        steps = tracer.steps()
        names = dict.fromkeys((s.model, s.hook) for s in steps)
        return [(m, h, sum(s.model == m for s in steps)) for m, h in names]


@on(4)
@of_three
def test_what_is_recorded(group: dist.ProcessGroup) -> None:
    """The average, then a late hook under a name of its own; each model; torch's own hooks."""
    late = _registering(group, "plain", 3, [])
    average = ("Branches", "ddp_allreduce")
    assert _step_counts(partial(train, group)) == [(*average, 6)]
    found = _step_counts(partial(train, group, prepare=late))
    assert found == [(*average, 3), ("Branches#2", "third", 3)]
    found = _step_counts(lambda: (train(group), train(group, dtype=torch.float64)))
    assert [steps for _, _, steps in found] == [6, 6]
    found = _step_counts(partial(train, group, in_backward=True))
    assert found == [("Branches", "apply_optim_in_backward_hook", 6)]


@on(2)
def test_copies_are_traced_and_said_to_have_lost_their_hook(rank: int) -> None:
    """A deep copy and an unpickled model train as torch lets them."""
    patches.warn_once.cache_clear()
    with heard("lost its communication hook") as said:
        for copied in (copy.deepcopy, _through_a_file):
            stock = _train_copy(copied)
            with traced():
                assert torch.equal(stock, _train_copy(copied)), copied
                assert "ddp_allreduce" in {s.hook for s in hooktrace.default_tracer().steps()}
    assert len(said) == 1


def _through_a_file(ddp: DistributedDataParallel) -> Any:
    buffer = io.BytesIO()
    torch.save(ddp, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def _train_copy(copied: Callable[[Any], Any]) -> torch.Tensor:
    ddp = DistributedDataParallel(Branches(), bucket_cap_mb=0.01)
    ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    ddp(inputs(0)).square().mean().backward()
    other = copied(ddp)
    assert len(other._comm_hooks) == 1
    seen = []
    for step in range(3):
        other.zero_grad()
        other(inputs(step)).square().mean().backward()
        seen += [p.grad.flatten().clone() for p in other.parameters() if p.grad is not None]
    return torch.cat(seen)
