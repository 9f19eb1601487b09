"""The standard DDP communication hooks under torch's names, staged, one family a file.

In: a hook's state and a bucket of gradients, from DDP.  Out: operations for the driver
(``staging``), and the bucket's result.

    default.py, gather.py      averages, as they are or as 16-bit numbers
    quantization.py            averages of bytes
    powersgd.py                low-rank: lowrank.py, powersgd_factors.py; what it remembers:
                               powersgd_state.py, powersgd_memory.py, parameter_order.py
    local_sgd.py, gossip.py, debugging.py      not over all ranks
      catalogue.py             all of these: one HookEntry (entry.py) each, registered by name
    hooks made of others: wrappers.py (casts), encode.py (two functions), optimizer.py with
    optimizer_state.py and zero.py (the optimizer's step in the callback)
"""

from __future__ import annotations

from .catalogue import *  # noqa: F403  # so that a new hook is named in the catalogue only
from .catalogue import __all__ as _catalogued
from .encode import encode_and_decode
from .optimizer import hook_then_optimizer
from .optimizer_state import OptimizerHookState
from .wrappers import bf16_compress_wrapper, fp16_compress_wrapper
from .zero import hook_with_zero_step, hook_with_zero_step_interleaved

__all__ = [
    "OptimizerHookState",
    "bf16_compress_wrapper",
    "encode_and_decode",
    "fp16_compress_wrapper",
    "hook_then_optimizer",
    "hook_with_zero_step",
    "hook_with_zero_step_interleaved",
]
__all__ += _catalogued  # noqa: PLE0605  # a list of names, though ruff cannot see it
