"""What a hook's name in the records says of it, for advice that fits it."""

from __future__ import annotations

AVERAGES = frozenset({"allreduce_hook", "ddp_allreduce"})
"""What averages as DDP itself does, so that nothing is lost where another hook takes its place.

``ddp_allreduce`` is DDP's own average: nobody registered a hook.
"""

_STOCK = {
    name: name
    for name in (
        *("allreduce_hook", "fp16_compress_hook", "bf16_compress_hook", "noop_hook"),
        *("powerSGD_hook", "batched_powerSGD_hook", "post_localSGD_hook"),
        *("quantization_pertensor_hook", "quantization_perchannel_hook"),
    )
} | {f"{kind}_compress_wrapper_hook": f"{kind}_compress_wrapper" for kind in ("fp16", "bf16")}
"""torch's hooks as records name them, and as ``hooktrace.hooks`` does."""


def how_to_see(hook: str) -> str:
    """Return what to do for the stages of a plain hook to be seen, a clause."""
    stock = _STOCK.get(hook.rsplit("<locals>.", maxsplit=1)[-1])
    if stock is not None:
        return f"use hooktrace.hooks.{stock} in place of torch's"
    return "write it with @hooktrace.staged"
