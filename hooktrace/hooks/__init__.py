"""The standard DDP communication hooks under torch's names, staged, one family a file."""

from __future__ import annotations

from .catalogue import (
    DDPCommHookType,
    HookEntry,
    catalogue,
    register_ddp_comm_hook,
)
from .debugging import noop_hook
from .default import allreduce_hook, bf16_compress_hook, fp16_compress_hook
from .encode import encode_and_decode
from .gather import allgather_then_aggregate_hook
from .gossip import GossipGradState, gossip_grad_hook
from .local_sgd import PostLocalSGDState, post_localSGD_hook
from .optimizer import OptimizerHookState, hook_then_optimizer
from .powersgd import batched_powerSGD_hook, powerSGD_hook
from .powersgd_state import PowerSGDState
from .quantization import quantization_perchannel_hook, quantization_pertensor_hook
from .wrappers import bf16_compress_wrapper, fp16_compress_wrapper
from .zero import hook_with_zero_step, hook_with_zero_step_interleaved

__all__ = [
    "DDPCommHookType",
    "GossipGradState",
    "HookEntry",
    "OptimizerHookState",
    "PostLocalSGDState",
    "PowerSGDState",
    "allgather_then_aggregate_hook",
    "allreduce_hook",
    "batched_powerSGD_hook",
    "bf16_compress_hook",
    "bf16_compress_wrapper",
    "catalogue",
    "encode_and_decode",
    "fp16_compress_hook",
    "fp16_compress_wrapper",
    "gossip_grad_hook",
    "hook_then_optimizer",
    "hook_with_zero_step",
    "hook_with_zero_step_interleaved",
    "noop_hook",
    "post_localSGD_hook",
    "powerSGD_hook",
    "quantization_perchannel_hook",
    "quantization_pertensor_hook",
    "register_ddp_comm_hook",
]
