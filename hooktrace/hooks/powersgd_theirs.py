"""torch's PowerSGDState as the state of hooktrace's hooks.

    torch's state --first bucket--> settings, step, random numbers --> a PowerSGDState, kept in it
                  <--each bucket-- step, statistics

torch's class has slots and takes no weak reference, so hooktrace's state is kept where torch keeps
what a bucket was: it lives as long as torch's, and is pickled with it.
"""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import Any, cast

from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as theirs

from .powersgd_state import PowerSGDState

logger = logging.getLogger(__name__)

TorchState = theirs.PowerSGDState

_KEY: Any = "hooktrace"
_SHARED = ("iter", "total_numel_before_compression", "total_numel_after_compression")


def of_theirs(state: PowerSGDState | TorchState) -> PowerSGDState:
    """Return the state that the hooks work with: the same, or the one that torch's stands for."""
    if isinstance(state, PowerSGDState):
        return state
    own: PowerSGDState | None = cast("Any", state.p_memory_dict.get(_KEY))
    if own is None:
        own = _made_of(state)
        state.p_memory_dict[_KEY] = cast("Any", own)
    if own.process_group is not state.process_group:
        own.process_group = state.process_group  # a pickled state leaves it out
    return own


def tell_theirs(state: PowerSGDState | TorchState) -> None:
    """Let torch's state say how far the hook is, for those who read or save it."""
    if isinstance(state, PowerSGDState):
        return
    own = of_theirs(state)
    for name in _SHARED:
        setattr(state, name, getattr(own, name))


def _made_of(state: TorchState) -> PowerSGDState:
    settings = {f.name: getattr(state, f.name) for f in fields(PowerSGDState) if f.init}
    own = PowerSGDState(**settings)
    own.rng = state.rng
    for name in (*_SHARED, "next_stats_report"):
        setattr(own, name, getattr(state, name))
    if state.error_dict or state.q_memory_dict:
        logger.warning(
            "of torch's PowerSGDState settings and step are taken over, not its residuals and "
            "factors, which begin anew"
        )
        state.error_dict.clear()
        state.p_memory_dict.clear()
        state.q_memory_dict.clear()
    return own
