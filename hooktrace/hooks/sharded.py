"""The hooks for FSDP's collectives in one list, beside the catalogue of DDP's.

SHARDED_HOOKS --> ``hooktrace hooks``

They are in ``hooktrace.fsdp.hooks``, which a listing does not need: it is imported, and torch with
it, when one is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

_HOME = "hooktrace.fsdp.hooks"


@dataclass(frozen=True, slots=True)
class ShardedHookEntry:
    """One hook.  ``name``: in ``hooktrace.fsdp.hooks``, of what makes it.

    ``takes_place_of``: the argument of ``hooktrace.fsdp.trace`` that it is passed as.  ``sends``:
    in words, of n ranks with parts of p elements.
    """

    name: str
    takes_place_of: Literal["reduce_scatter", "all_gather"]
    sends: str
    what: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def make(self) -> Any:
        """Return a new hook, a ``ScatterHook`` or a ``GatherHook``."""
        return getattr(import_module(_HOME), self.name)(**self.options)

    @property
    def label(self) -> str:
        """What the command line calls it."""
        return self.name + ("-feedback" if self.options else "")

    @property
    def call(self) -> str:
        """How it is made, as one writes it."""
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{self.name}({options})"


_FEEDBACK = {"error_feedback": True}

SHARDED_HOOKS = (
    ShardedHookEntry("fp16_reduce_scatter", "reduce_scatter", "2np bytes", "gradients as float16"),
    ShardedHookEntry("bf16_reduce_scatter", "reduce_scatter", "2np bytes", "gradients as bfloat16"),
    ShardedHookEntry(
        "bf16_reduce_scatter",
        "reduce_scatter",
        "2np bytes",
        "what was lost is added to the next step's",
        _FEEDBACK,
    ),
    ShardedHookEntry(
        "EightBitReduceScatter",
        "reduce_scatter",
        "np bytes, and 5n for each 512 of a part",
        "gradients as bytes, each part for its rank alone",
    ),
    ShardedHookEntry(
        "EightBitReduceScatter",
        "reduce_scatter",
        "np bytes, and 5n for each 512 of a part",
        "what was lost is added to the next step's",
        _FEEDBACK,
    ),
    ShardedHookEntry(
        "EightBitAllGather",
        "all_gather",
        "p bytes, and 5 for each 512",
        "parameters as bytes; all ranks compute with the rounded ones",
    ),
    ShardedHookEntry(
        "Fp8AllGather",
        "all_gather",
        "p + 4 bytes",
        "parameters as 8-bit floats (e4m3) with one scale",
    ),
)
"""All of them, and two of those with error feedback."""
