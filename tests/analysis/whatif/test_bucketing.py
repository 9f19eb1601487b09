"""Buckets as DDP makes them: torch's own function, and a real model's rebuilt buckets."""

from __future__ import annotations

import doctest
import itertools
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.parallel import DistributedDataParallel

from hooktrace.analysis.whatif import bucketing
from hooktrace.analysis.whatif.bucketing import assign_buckets, bucket_limits, rebuilt_buckets
from hooktrace.analysis.whatif.work import Parameter
from hooktrace.records.errors import UsageError

DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}

tensors = st.lists(st.tuples(st.integers(0, 64), st.sampled_from(sorted(DTYPES))), min_size=1)
limits = st.lists(st.integers(1, 300), min_size=1, max_size=4)


@settings(deadline=None)
@given(tensors, limits)
def test_assigns_as_torch_does(made: list[tuple[int, str]], at_most: list[int]) -> None:
    expected, _ = dist._compute_bucket_assignment_by_size(
        [torch.empty(numel, dtype=getattr(torch, dtype)) for numel, dtype in made],
        at_most,
        [False] * len(made),
        list(range(len(made))),
    )
    sizes = [numel * DTYPES[dtype] for numel, dtype in made]
    dtypes = [dtype for _, dtype in made]
    assert assign_buckets(sizes, dtypes, at_most) == expected


def test_the_example_and_no_tensors() -> None:
    assert doctest.testmod(bucketing).failed == 0
    assert assign_buckets([], [], [1]) == []


@pytest.fixture(scope="module")
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def real_buckets(cap_mb: float | None) -> tuple[list[Parameter], list[list[str]]]:
    """Return a model's parameters as they became ready, and the names in its settled buckets."""
    widths = [300, 500, 40, 700, 700, 10, 300]
    layers = [torch.nn.Linear(*pair) for pair in itertools.pairwise(widths)]
    layers[2] = layers[2].double()
    model = torch.nn.Sequential(*layers)
    model.forward = lambda x: layers[5](  # type: ignore[method-assign]  # one layer in float64
        layers[4](layers[3](layers[2](layers[1](layers[0](x)).double()).float()))
    )
    ddp = DistributedDataParallel(model, bucket_cap_mb=cap_mb)  # type: ignore[arg-type]  # torch takes fractions of a MB
    names = {id(one): name for name, one in model.named_parameters()}
    ready: list[Parameter] = []
    seen: list[list[str]] = []

    def note(one: torch.Tensor) -> None:
        dtype = str(one.dtype).removeprefix("torch.")
        size = one.numel() * one.element_size()
        ready.append(Parameter(names[id(one)], tuple(one.shape), dtype, size))

    def hook(state, bucket):  # torch refuses annotations that are strings
        seen.append([names[id(one)] for one in bucket.parameters()])
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    for one in model.parameters():
        one.register_post_accumulate_grad_hook(note)
    ddp.register_comm_hook(None, hook)
    for _ in range(3):
        ready.clear()
        seen.clear()
        ddp(torch.ones(2, 300)).sum().backward()
    return ready, seen


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("cap_mb", [None, 0.001, 0.5, 1, 1.25, 3, 25])
def test_a_real_model_rebuilds_its_buckets_so(cap_mb: float | None) -> None:
    ready, seen = real_buckets(cap_mb)
    first, cap = bucket_limits(cap_mb)
    rows = rebuilt_buckets(ready, cap, first)
    assert [[ready[row].name for row in bucket] for bucket in rows] == seen


def test_caps_that_hold_nothing_are_refused() -> None:
    for cap in (0.0, -1.0, float("nan")):
        with pytest.raises(UsageError, match=r"holds nothing; pass one above 0"):
            bucket_limits(cap)
