"""What each standard hook sends for a bucket of any parameters, and what its work depends on.

    hook's name, options --label_of--> label
    parameters of a bucket --Rule.sends--> (collective, payload bytes) of each round
                           --Rule.features--> what its time is a sum of (``costs``)

The rules are those of ``hooktrace.hooks``, from shapes alone: nothing is measured here.  Bytes are
those of a trial, exactly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .work import Parameter

Parameters = Sequence[Parameter]
Values = Mapping[str, Any]


class Sent(NamedTuple):
    """One collective of a bucket, and one rank's payload in bytes.

    ``halves``: elements of an all-reduce that are float16, which gloo adds one by one.
    """

    collective: str
    wire_bytes: int
    halves: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    """One hook; ``options``: of its state, or what it was bound to.

    ``kind``: as in the catalogue.  ``serial``: one bucket's rounds after another's.
    """

    kind: str
    sends: Callable[[Parameters, Values], list[Sent]]
    features: Callable[[Parameters, Values], list[float]]
    serial: bool = False

    @property
    def lossy(self) -> bool:
        """Whether results differ from the average by more than rounding."""
        return self.kind != "lossless"


def label_of(hook: str, options: Values) -> str:
    """Return the name by which a hook with its options is asked for: ``powersgd-rank4``."""
    rank, channel = options.get("matrix_approximation_rank"), options.get("bucket_size")
    if "powersgd" in hook and "-rank" not in hook and rank is not None and int(rank) > 1:
        return f"{hook}-rank{rank}"
    if hook == "quantize-per-channel" and channel not in (None, _CHANNEL):
        return f"{hook}-{channel}"
    return hook


def rule_of(hook: str) -> Rule | None:
    """Return the rule of a hook, by its name on the command line; ``None`` of one without."""
    return _RULES.get(_OPTION.sub("", hook))


def known_as(function: str, options: Values) -> tuple[str, dict[str, Any]] | None:
    """Return the command line's name and the options of a hook, as its records name it.

    ``function``: ``quantization_perchannel_hook(bucket_size=128)``; ``options``: of its state.
    ``None`` of a hook that has no rule here.
    """
    name, _, bound = function.partition("(")
    given = {key: int(value) for key, value in _BOUND.findall(bound)}
    found = _FUNCTIONS.get(name)
    return None if found is None else (found, {**options, **given})


def numel(parameters: Parameters) -> int:
    """Return the elements of a bucket."""
    return sum(math.prod(one.shape) for one in parameters)


def nbytes(parameters: Parameters) -> int:
    """Return the bytes of a bucket's gradients."""
    return sum(one.nbytes for one in parameters)


def _plain(parameters: Parameters, options: Values) -> list[float]:
    """Return what work depends on that takes some time a bucket, and some a byte."""
    return [1.0, float(nbytes(parameters))]


def _reduced(parameters: Parameters, options: Values) -> list[Sent]:
    return [Sent("all_reduce", nbytes(parameters))]


def _reduced_as_fp16(parameters: Parameters, options: Values) -> list[Sent]:
    return [Sent("all_reduce", 2 * numel(parameters), halves=numel(parameters))]


def _reduced_as_bf16(parameters: Parameters, options: Values) -> list[Sent]:
    return [Sent("all_reduce", 2 * numel(parameters))]


def _gathered(parameters: Parameters, options: Values) -> list[Sent]:
    return [Sent("all_gather", nbytes(parameters))]


def _per_tensor(parameters: Parameters, options: Values) -> list[Sent]:
    return _bytes_with_headers(numel(parameters), 1)


def _per_channel(parameters: Parameters, options: Values) -> list[Sent]:
    count = numel(parameters)
    return _bytes_with_headers(count, -(-count // int(options.get("bucket_size") or _CHANNEL)))


def _bytes_with_headers(count: int, channels: int) -> list[Sent]:
    return [Sent("all_gather", count + _HEADER_BYTES * channels)] if count else []


class _Cut(NamedTuple):
    """How PowerSGD cuts a bucket: elements sent as they are, and (n, m, rank) of each matrix."""

    plain: int
    matrices: list[tuple[int, int, int]]


def _cut(parameters: Parameters, options: Values) -> _Cut:
    """Return what is compressed: as ``hooks.powersgd_factors``."""
    wanted = int(options.get("matrix_approximation_rank") or 1)
    rate = float(options.get("min_compression_rate") or 2)
    plain, matrices = 0, []
    for one in parameters:
        count = math.prod(one.shape)
        n = one.shape[0] if one.shape else 0
        m = count // n if n else 0
        rank = min(n, m, wanted)
        if count and one.shape and (n + m) * rank * rate < n * m:
            matrices.append((n, m, rank))
        else:
            plain += count
    return _Cut(plain, matrices)


def _power_sgd(parameters: Parameters, options: Values) -> list[Sent]:
    cut, item = _cut(parameters, options), _item(parameters)
    first = item * (cut.plain + sum(n * rank for n, _, rank in cut.matrices))
    second = item * sum(m * rank for _, m, rank in cut.matrices)
    return [Sent("all_reduce", size) for size in (first, second)[: 2 if cut.matrices else 1]]


def _power_sgd_work(parameters: Parameters, options: Values) -> list[float]:
    cut, item = _cut(parameters, options), _item(parameters)
    compressed = item * sum(n * m for n, m, _ in cut.matrices)
    thin = item * sum((n + m) * rank for n, m, rank in cut.matrices)
    return [1.0, float(compressed), float(item * cut.plain), float(len(cut.matrices)), float(thin)]


def _batched(parameters: Parameters, options: Values) -> list[Sent]:
    side = math.isqrt(max(numel(parameters), 1) - 1) + 1
    rank = min(side, int(options.get("matrix_approximation_rank") or 1))
    return [Sent("all_reduce", _item(parameters) * side * rank)] * 2


def _item(parameters: Parameters) -> int:
    """Return the bytes of an element; the gradients of a bucket are of one dtype."""
    return next((p.nbytes // math.prod(p.shape) for p in parameters if math.prod(p.shape)), 4)


_OPTION = re.compile(r"-(rank)?\d+$")
_BOUND = re.compile(r"(\w+)=(\d+)")
_CHANNEL = 512
_HEADER_BYTES = 5
_POWER_SGD = Rule("low-rank", _power_sgd, _power_sgd_work, serial=True)
_RULES = {
    "allreduce": Rule("lossless", _reduced, _plain),
    "fp16": Rule("cast", _reduced_as_fp16, _plain),
    "bf16": Rule("cast", _reduced_as_bf16, _plain),
    "quantize-per-tensor": Rule("quantised", _per_tensor, _plain),
    "quantize-per-channel": Rule("quantised", _per_channel, _plain),
    "allgather": Rule("lossless", _gathered, _plain),
    "powersgd": _POWER_SGD,
    "batched-powersgd": Rule("low-rank", _batched, _plain, serial=True),
    "noop": Rule("local", lambda parameters, options: [], _plain),
}
_FUNCTIONS = {
    "allreduce_hook": "allreduce",
    "ddp_allreduce": "allreduce",
    "fp16_compress_hook": "fp16",
    "bf16_compress_hook": "bf16",
    "bf16_compress_staged_hook": "bf16",
    "quantization_pertensor_hook": "quantize-per-tensor",
    "quantization_perchannel_hook": "quantize-per-channel",
    "powerSGD_hook": "powersgd",
    "batched_powerSGD_hook": "batched-powersgd",
    "allgather_then_aggregate_hook": "allgather",
    "noop_hook": "noop",
}
"""By the name under which a hook's records are; what it does with state is in its options."""
