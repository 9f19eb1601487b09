"""The standard DDP communication hooks under torch's names, staged, one family a file."""

from __future__ import annotations

from .debugging import noop_hook
from .default import allreduce_hook, bf16_compress_hook, fp16_compress_hook
from .encode import encode_and_decode
from .gather import allgather_then_aggregate_hook
from .powersgd import batched_powerSGD_hook, powerSGD_hook
from .powersgd_state import PowerSGDState
from .quantization import quantization_perchannel_hook, quantization_pertensor_hook
from .wrappers import bf16_compress_wrapper, fp16_compress_wrapper

__all__ = [
    "PowerSGDState",
    "allgather_then_aggregate_hook",
    "allreduce_hook",
    "batched_powerSGD_hook",
    "bf16_compress_hook",
    "bf16_compress_wrapper",
    "encode_and_decode",
    "fp16_compress_hook",
    "fp16_compress_wrapper",
    "noop_hook",
    "powerSGD_hook",
    "quantization_perchannel_hook",
    "quantization_pertensor_hook",
]
