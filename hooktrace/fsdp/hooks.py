"""Reduce-scatters and all-gathers that send less, staged as DDP's hooks are.

    whole gradients of a unit (n parts) --encode each part--> bytes     compress
                       reduce-scatter, or all-to-all                    wire
                       decode, add, divide --> this rank's part        decompress

    this rank's parameters --encode--> all-gather --> decode all n parts, its own one too

**Who scales.**  FSDP averages by the operation that it asks for: AVG, SUM (it then divides before
and after by itself), or a sum that is multiplied (``set_gradient_divide_factor``).  So a hook's
result is ``sum over ranks / divisor``, with a divisor of n, 1, or one over that factor, and a hook
multiplies by nothing else.  ``divisor_of`` is the only place that knows.

**Who rounds.**  A unit's own part is decoded too: all ranks compute with the same parameters, and
a gradient's part is the sum of what all ranks have sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from ..hooks.quantization import decode_sum, encode, encoded_bytes
from ..staging.collectives import AllGather, AllToAll, ReduceScatter
from ..staging.driver import Steps

_LEAST_SCALE = torch.finfo(torch.float32).tiny
"""Gradients of a mean over many tokens are as small as 1e-8, and are to be told from 0."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """One reduce-scatter that FSDP asks for.

    ``gradients``: of the whole unit, flat, (n * part,), padded; a hook may write to it.  ``part``:
    this rank's, (part,), for the result.  ``group``: of n ranks.  ``divisor``: the result is the
    sum over ranks, divided by that.  ``unit``: its name.  ``memory``: the unit's own: what a
    hook keeps for its next step, by its ``id`` (the unit holds it, and it may not be hashable).
    """

    gradients: torch.Tensor
    part: torch.Tensor
    group: dist.ProcessGroup
    divisor: float
    unit: str
    memory: dict[int, torch.Tensor] = field(default_factory=dict)

    def index(self) -> str:
        """Return what errors call it."""
        return self.unit


@dataclass(frozen=True, slots=True)
class Gathering:
    """One all-gather that FSDP asks for.

    ``own``: this rank's parameters, flat, (part,), inside of ``whole``.  ``whole``: of the unit,
    (n * part,), for the result.
    """

    own: torch.Tensor
    whole: torch.Tensor
    group: dist.ProcessGroup
    unit: str

    def index(self) -> str:
        """Return what errors call it."""
        return self.unit


class ScatterHook:
    """Reduces and scatters gradients; ``steps`` is a generator as a staged hook's.

    It returns this rank's part of ``sum / divisor``, in any floating-point dtype.
    """

    name = ""

    def steps(self, reduction: Reduction) -> Steps:
        """Yield collectives and return this rank's part."""
        raise NotImplementedError

    def _add_lost(self, reduction: Reduction) -> None:
        """Add to a unit's gradients what its last step has lost, with error feedback."""
        lost = reduction.memory.get(id(self))
        if lost is not None and lost.shape == reduction.gradients.shape:
            reduction.gradients.add_(lost)

    def _keep_lost(self, reduction: Reduction, sent: torch.Tensor) -> None:
        """Keep what is lost now; NaN and inf, of a step that is skipped, would stay for ever."""
        lost = reduction.gradients - sent
        reduction.memory[id(self)] = lost.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


class GatherHook:
    """Gathers parameters; ``steps`` returns those of the whole unit, the same on all ranks."""

    name = ""

    def steps(self, gathering: Gathering) -> Steps:
        """Yield collectives and return the whole."""
        raise NotImplementedError


def divisor_of(op: Any, ranks: int) -> float:
    """Return what a reduction divides the sum over ranks by.

    Raises ``ValueError`` for one that is no sum.
    """
    if op == dist.ReduceOp.AVG:
        return float(ranks)
    if op == dist.ReduceOp.SUM:
        return 1.0
    if op == dist.ReduceOp.PREMUL_SUM:
        _, factor = op.__getstate__()
        return 1 / float(factor)
    raise ValueError(f"FSDP asked for {op}, which is no sum; use torch's own reduce-scatter for it")


class CastReduceScatter(ScatterHook):
    """Sends gradients as 16-bit numbers: half the bytes of float32.

    They are divided before the cast, so that a sum of float16 does not overflow where the average
    does not.  ``error_feedback``: adds to a step's gradients what the cast of the step before lost,
    which takes memory for a whole unit's gradients, not a part's.  Not where other parameters of
    the unit were trained then, or where some of them had no gradients.
    """

    def __init__(self, dtype: torch.dtype, name: str, *, error_feedback: bool = False) -> None:
        self._dtype = dtype
        self.name = f"{name}(error_feedback=True)" if error_feedback else name
        self._feedback = error_feedback

    def steps(self, reduction: Reduction) -> Steps:
        """Cast, reduce and scatter."""
        gradients = reduction.gradients
        self._add_lost(reduction)
        sent = (gradients / reduction.divisor).to(self._dtype)
        if self._feedback:
            self._keep_lost(reduction, sent.to(gradients.dtype) * reduction.divisor)
        return (yield ReduceScatter(sent, reduction.group))


class EightBitReduceScatter(ScatterHook):
    """Sends gradients as bytes, with a scale for each ``channel`` elements, and adds in float32.

    Each rank's part is encoded by itself and sent to that rank alone (an all-to-all), so a byte is
    decoded once.  Sends n * (part + 5 bytes a channel).  ``error_feedback``: as in
    ``CastReduceScatter``.

    Raises ``ValueError`` for a ``channel`` below 1.
    """

    def __init__(self, channel: int = 512, *, error_feedback: bool = False) -> None:
        if channel < 1:
            raise ValueError(f"channel={channel} cannot work; pass 1 or more, such as 512")
        self._channel = channel
        feedback = ", error_feedback=True" if error_feedback else ""
        self.name = f"eight_bit_reduce_scatter(channel={channel}{feedback})"
        self._feedback = error_feedback

    def steps(self, reduction: Reduction) -> Steps:
        """Encode, exchange, decode and add."""
        gradients, channel = reduction.gradients, self._channel
        self._add_lost(reduction)
        parts = gradients.view(reduction.group.size(), -1)
        size = encoded_bytes(parts.shape[1], channel)
        sent = gradients.new_empty((len(parts), size), dtype=torch.uint8)
        for part, row in zip(parts, sent, strict=True):
            encode(part, channel, row, _LEAST_SCALE)
        if self._feedback:
            decoded = torch.empty_like(parts)
            for row, out in zip(sent, decoded, strict=True):
                decode_sum(row.view(1, -1), channel, out, 1.0)
            self._keep_lost(reduction, decoded.flatten())
        received = yield AllToAll(sent, reduction.group)
        result = torch.empty_like(reduction.part)
        decode_sum(received.view(len(parts), -1), channel, result, reduction.divisor)
        return result


class EightBitAllGather(GatherHook):
    """Sends parameters as bytes, with a scale for each ``channel`` elements.

    Training then computes with rounded parameters, the same on all ranks; what the optimizer
    changes stays whole.  Raises ``ValueError`` for a ``channel`` below 1.
    """

    def __init__(self, channel: int = 512) -> None:
        if channel < 1:
            raise ValueError(f"channel={channel} cannot work; pass 1 or more, such as 512")
        self._channel = channel
        self.name = f"eight_bit_all_gather(channel={channel})"

    def steps(self, gathering: Gathering) -> Steps:
        """Encode, gather and decode."""
        own, channel = gathering.own, self._channel
        sent = own.new_empty(encoded_bytes(len(own), channel), dtype=torch.uint8)
        encode(own, channel, sent, _LEAST_SCALE)
        gathered = yield AllGather(sent, gathering.group)
        whole = gathering.whole.view(gathering.group.size(), -1)
        for row, out in zip(gathered, whole, strict=True):
            decode_sum(row.view(1, -1), channel, out, 1.0)
        return gathering.whole


class Fp8AllGather(GatherHook):
    """Sends parameters as 8-bit floating-point numbers (e4m3) with one scale a unit and rank.

    The scale maps the largest magnitude to the largest number of the format; otherwise as
    ``EightBitAllGather``.  Sends part + 4 bytes.
    """

    name = "fp8_all_gather"
    _dtype = torch.float8_e4m3fn

    def steps(self, gathering: Gathering) -> Steps:
        """Cast, gather and cast back."""
        own = gathering.own
        # Never 0, also where torch.set_flush_denormal makes that of less than ``tiny``.
        scale = own.abs().max().float().div(torch.finfo(self._dtype).max).clamp(min=_LEAST_SCALE)
        sent = own.new_empty(len(own) + 4, dtype=torch.uint8)
        sent[:4] = scale.view(1).view(torch.uint8)
        sent[4:] = (own.float() / scale).to(self._dtype).view(torch.uint8)
        gathered = yield AllGather(sent, gathering.group)
        whole = gathering.whole.view(gathering.group.size(), -1)
        for row, out in zip(gathered, whole, strict=True):
            theirs = row[:4].clone().view(torch.float32)
            out.copy_(row[4:].view(self._dtype).float().mul_(theirs))
        return gathering.whole


def fp16_reduce_scatter(*, error_feedback: bool = False) -> ScatterHook:
    """Return a hook that sends gradients as float16."""
    return CastReduceScatter(torch.float16, "fp16_reduce_scatter", error_feedback=error_feedback)


def bf16_reduce_scatter(*, error_feedback: bool = False) -> ScatterHook:
    """Return a hook that sends gradients as bfloat16, with float32's range."""
    return CastReduceScatter(torch.bfloat16, "bf16_reduce_scatter", error_feedback=error_feedback)
