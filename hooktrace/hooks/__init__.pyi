"""The public names, in the one place where they are listed."""

from .catalogue import DDPCommHookType as DDPCommHookType
from .catalogue import HookEntry as HookEntry
from .catalogue import catalogue as catalogue
from .catalogue import register_ddp_comm_hook as register_ddp_comm_hook
from .default import allgather_then_aggregate_hook as allgather_then_aggregate_hook
from .default import allreduce_hook as allreduce_hook
from .default import bf16_compress_hook as bf16_compress_hook
from .default import fp16_compress_hook as fp16_compress_hook
from .default import noop_hook as noop_hook
from .gossip import GossipGradState as GossipGradState
from .gossip import gossip_grad_hook as gossip_grad_hook
from .local_sgd import PostLocalSGDState as PostLocalSGDState
from .local_sgd import post_localSGD_hook as post_localSGD_hook
from .optimizer import OptimizerHookState as OptimizerHookState
from .optimizer import hook_then_optimizer as hook_then_optimizer
from .powersgd import batched_powerSGD_hook as batched_powerSGD_hook
from .powersgd import powerSGD_hook as powerSGD_hook
from .powersgd_state import PowerSGDState as PowerSGDState
from .quantization import quantization_perchannel_hook as quantization_perchannel_hook
from .quantization import quantization_pertensor_hook as quantization_pertensor_hook
from .wrappers import bf16_compress_wrapper as bf16_compress_wrapper
from .wrappers import encode_and_decode as encode_and_decode
from .wrappers import fp16_compress_wrapper as fp16_compress_wrapper
from .zero import hook_with_zero_step as hook_with_zero_step
from .zero import hook_with_zero_step_interleaved as hook_with_zero_step_interleaved
