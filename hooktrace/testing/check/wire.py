"""What a hook sends, heard as it sends it, and how much of the average that may cost.

Float32 of every element loses nothing but rounding, 16-bit numbers lose their rounding, bytes a
tenth.  A hook that sends fewer values than there are gradients, such as a sparse or a low-rank one,
has no such bound.  The least precise material part counts: a reduce-scatter in float32 before an
all-gather in float16 gives float16.  Scales and thresholds are too few to matter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.distributed._functional_collectives as functional
from torch.distributed import ProcessGroup

from ...records import Transfer

_FIRST = "allreduce", "allreduce_coalesced", "broadcast", "reduce", "send"
_SECOND = (
    *("allgather", "allgather_coalesced", "_allgather_base", "all_gather_single"),
    *("allgather_into_tensor_coalesced", "all_gather_single_coalesced"),
    *("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single"),
    *("reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced"),
    *("alltoall", "alltoall_base", "all_to_all_single"),
    *("gather", "gather_single", "gather_into_tensor", "scatter"),
)
"""A process group's methods by the place of what goes in, under torch's old and new names."""

_EXACT = 1e-5
"""Float32 sums of a few ranks in any order, and a factor or two, stay far below."""

_ROUNDINGS = 2.5
"""Truncation loses twice what rounding does."""

_BYTES = 0.1
"""8-bit floating point with two bits of mantissa: half a unit is 1/8 of the least value."""

_WHOLE = 0.95
_INDICES = ("int64", "int32", "bool")

Heard = list[Transfer | None]
"""What was sent; ``None`` of a collective of which no more is known."""


@contextmanager
def listening(heard: Heard) -> Iterator[None]:
    """Add to ``heard`` each tensor that this process gives to a collective, or sends, meanwhile.

    Hears all that goes through torch.distributed's Python functions, on every thread; of functional
    collectives, which C++ issues, no more than that there was one: ``None``.
    """
    name = "_resolve_group" if hasattr(functional, "_resolve_group") else "_resolve_group_name"
    resolve = getattr(functional, name)  # older torch has the latter

    def resolved(*args: Any, **options: Any) -> Any:
        heard.append(None)
        return resolve(*args, **options)

    places = dict.fromkeys(_FIRST, 0) | dict.fromkeys(_SECOND, 1)
    known = places.keys() & vars(ProcessGroup).keys()
    methods: dict[str, Any] = {name: _heard_by(heard, name, places[name]) for name in known}
    resolving = patch.object(functional, name, resolved)
    with resolving, patch.multiple(ProcessGroup, **methods):
        yield


def _heard_by(heard: Heard, name: str, place: int) -> Callable[..., Any]:
    method = vars(ProcessGroup)[name]

    def issue(group: ProcessGroup, *args: Any, **options: Any) -> Any:
        work = method(group, *args, **options)
        if place >= len(args):  # they go by their names, which torch has changed
            heard.append(None)
        for tensor in _tensors(args[place : place + 1]):
            count = tensor.numel() * tensor.element_size()
            dtype = str(tensor.dtype).removeprefix("torch.")
            heard.append(Transfer(collective=name, dtype=dtype, wire_bytes=count))
        return work

    return issue


def _tensors(given: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of nested lists."""
    if isinstance(given, torch.Tensor):
        yield given
        return
    for part in given:
        yield from _tensors(part)


class WireFormat(NamedTuple):
    """``width``: bytes of each element's value, 4 if exact; 0 if fewer values are sent, or unknown.

    ``dtype``: the least precise material one.  ``bits``: sent for each gradient element, indices
    and all; 0 if nothing was heard, or not all.
    """

    width: int = 0
    dtype: str = ""
    bits: float = 0.0

    def tolerance(self, ranks: int, dtype: torch.dtype = torch.float32) -> float:
        """Return the largest relative L2 error that the format explains; inf without a bound.

        ``ranks``: whose shares are added.  ``dtype``: of the result.
        """
        rounding = _ROUNDINGS * math.sqrt(ranks) / 2  # of shares that are added one by one
        # Of 16-bit integers the coarser of the 16-bit floats says what to expect.
        half = torch.float16 if self.dtype == "float16" else torch.bfloat16
        # With one scale for all ranks there is room for their sum.
        bytes_ = _BYTES * max(1.0, ranks / 4)
        sent = {0: math.inf, 1: bytes_, 2: rounding * torch.finfo(half).eps, 4: 0.0}[self.width]
        return sent + (_EXACT if dtype.itemsize >= 4 else rounding * torch.finfo(dtype).eps)


def format_of(transfers: Sequence[Transfer | None], numel: int, ranks: int) -> WireFormat:
    """Return the format of what was sent for ``numel`` gradient elements, of all steps together."""
    sent: Counter[tuple[str, str]] = Counter()
    for transfer in transfers:
        if transfer is None:
            return WireFormat()
        sent[transfer.dtype, transfer.collective] += transfer.wire_bytes
    # Of two kinds of collectives the second one may send the same values on.
    values: dict[str, float] = {}
    for (name, _), count in sent.items():
        values[name] = max(values.get(name, 0.0), count / _itemsize(name) / numel)
    bits = 8 * sent.total() / numel
    values = {name: values[name] for name in values if name not in _INDICES} or values
    if sum(values.values()) < _WHOLE:
        return WireFormat(0, ", ".join(sorted(values)), bits)
    material = [name for name in values if values[name] >= 0.5 / ranks] or list(values)
    dtype = min(material, key=lambda name: (_itemsize(name), name != "bfloat16"))
    return WireFormat(2 if dtype == "int32" else min(_itemsize(dtype), 4), dtype, bits)


def _itemsize(dtype: str) -> int:
    return int(getattr(torch, dtype, torch.float32).itemsize)
