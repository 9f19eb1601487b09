"""Hooks of FSDP's collectives, called as FSDP calls them, with numbers that all ranks know.

    Make(rank, numel) --each rank's own--> hook on the real group --> Scattered or Gathered
                     +--every rank's, made here too--> what the result should be

No model is needed: a hook is given flat tensors, and returns one.  Each element at an end of a
rank's part is as large as the largest, so that one that is lost cannot be taken for rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ...fsdp.hooks import GatherHook, Gathering, Reduction, ScatterHook
from ...records import Transfer
from ...staging.driver import Steps
from ...staging.operation import Operation
from ...staging.synchronous import run_synchronously
from .rank import Context
from .wire_format import WireFormat, format_of

Make = Callable[[int, int], torch.Tensor]
"""``(rank, numel)`` to what that rank gives to a hook, flat."""

_LARGE = 3.0


class Scattered(NamedTuple):
    """A reduce-scatter of one rank, in float64.

    ``result``: (part,).  ``columns``: (ranks, part), what each rank has given for this part.
    ``sent``: what this rank handed to collectives; ``numel``: for so many elements.
    """

    result: torch.Tensor
    columns: torch.Tensor
    divisor: float
    dtype: torch.dtype
    sent: list[Transfer]
    numel: int

    @property
    def expected(self) -> torch.Tensor:
        """What the result should be."""
        return self.columns.sum(0) / self.divisor


class Gathered(NamedTuple):
    """An all-gather of one rank, in float64: ``result`` and ``expected`` (ranks, part)."""

    result: torch.Tensor
    expected: torch.Tensor
    dtype: torch.dtype
    sent: list[Transfer]
    numel: int


def numbers(seed: int, size: float = 1.0) -> Make:
    """Return what makes normal numbers, others for each rank, with large ones at a part's ends."""

    def make(rank: int, numel: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1009 * seed + rank)
        made = torch.randn(numel, generator=generator).clamp(-_LARGE, _LARGE)
        ranks = dist.get_world_size()
        for part in made.chunk(ranks) if numel >= ranks else (made,):
            part[0], part[-1] = _LARGE, -_LARGE if len(part) > 1 else _LARGE
        return made * size

    return make


def scatter(
    context: Context,
    part: int,
    make: Make,
    *,
    divisor: float | None = None,
    dtype: torch.dtype = torch.float32,
    unit: str,
) -> Scattered:
    """Run the hook once; ``part``: elements of a rank's part.  ``divisor``: of an average."""
    hook, group, size = context.loaded.hook, _world(), context.size
    assert isinstance(hook, ScatterHook)
    divisor = float(size) if divisor is None else divisor
    given = [make(rank, size * part).to(dtype) for rank in range(size)]
    sent: list[Transfer] = []
    result = given[0].new_empty(part)
    asked = Reduction(given[context.rank].clone(), result, group, divisor, unit)
    steps = _watched(hook.steps(asked), sent)
    result.copy_(run_synchronously(hook.name, steps, asked, None, part))
    columns = torch.stack([one.view(size, part)[context.rank].double() for one in given])
    return Scattered(result.double(), columns, divisor, dtype, sent, size * part)


def gather(
    context: Context, part: int, make: Make, *, dtype: torch.dtype = torch.float32, unit: str
) -> Gathered:
    """Run the hook once, on parameters of ``part`` elements a rank that lie in the result."""
    hook, group, size = context.loaded.hook, _world(), context.size
    assert isinstance(hook, GatherHook)
    given = torch.stack([make(rank, part).to(dtype) for rank in range(size)])
    whole = given.new_full((size * part,), torch.nan)
    own = whole.view(size, part)[context.rank]
    own.copy_(given[context.rank])
    sent: list[Transfer] = []
    asked = Gathering(own, whole, group, unit)
    result = run_synchronously(
        hook.name, _watched(hook.steps(asked), sent), asked, None, whole.numel()
    )
    if result is not whole:
        whole.copy_(result)
    return Gathered(whole.view(size, part).double(), given.double(), dtype, sent, part)


def wire_format(call: Scattered | Gathered, ranks: int) -> WireFormat:
    """Return what was sent for each element."""
    return format_of(call.sent, call.numel, ranks)


def ratio(call: Scattered | Gathered) -> float:
    """Return bytes of the elements over bytes that were sent; inf where nothing was."""
    sent = sum(one.wire_bytes for one in call.sent)
    return call.numel * call.dtype.itemsize / sent if sent else float("inf")


def _watched(steps: Steps, sent: list[Transfer]) -> Generator[Operation, Any, torch.Tensor]:
    """Run a hook's generator, and take note of what its collectives send."""
    value: Any = None
    while True:
        try:
            operation = steps.send(value)
        except StopIteration as stop:
            result: torch.Tensor = stop.value
            return result
        known = operation.describe()
        if known is not None:
            dtype = str(known.dtype).removeprefix("torch.")
            sent.append(Transfer(collective=known.kind, dtype=dtype, wire_bytes=known.wire_bytes))
        value = yield operation


def _world() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None
    return group
