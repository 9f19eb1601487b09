"""What a PowerSGD state remembers, as numbers and tensors, for ``torch.load(weights_only=True)``.

    __getstate__ --to_plain--> state_dict, of one rank --from_plain--> __setstate__

Residuals are what a rank's own gradients lost, so that one rank's are of no use to another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ..staging.groups import group_of
from .powersgd_settings import PowerSGDSettings

if TYPE_CHECKING:
    import numpy as np

_SHAPING = (
    *("matrix_approximation_rank", "min_compression_rate"),
    *("use_error_feedback", "warm_start"),
)
"""Settings under which other things are remembered."""

_BY_BUCKET = ("error_dict", "p_memory_dict", "q_memory_dict")
_COUNTS = ("iter", "total_numel_before_compression", "total_numel_after_compression")


def to_plain(state: Mapping[str, Any], settings: PowerSGDSettings) -> dict[str, Any]:
    """Return what is kept, without what is there twice; tensors are not copied."""
    by_parameter = {key: _plain(memory) for key, memory in state["_by_parameter"].items()}
    by_bucket = {name: {} if by_parameter else dict(state[name]) for name in _BY_BUCKET}
    rank, ranks = _place(settings)
    return {
        **{name: state[name] for name in (*_SHAPING, *_COUNTS, "next_stats_report")},
        **by_bucket,
        "by_parameter": by_parameter,
        "squares": {index: list(found) for index, found in state["_squares"].items()},
        "rng": _plain_random(settings.rng),
        "rank": rank,
        "ranks": ranks,
    }


def from_plain(saved: Mapping[str, Any], memory: Callable[..., Any]) -> dict[str, Any]:
    """Return what ``__setstate__`` takes, with copies of the tensors.

    ``memory``: makes what is remembered of a parameter.
    """
    by_bucket = {
        name: {index: tensor.clone() for index, tensor in saved[name].items()}
        for name in _BY_BUCKET
    }
    return {
        **{name: saved[name] for name in (*_COUNTS, "next_stats_report")},
        **by_bucket,
        "_by_parameter": {
            key: memory(*_copied(kept)) for key, kept in saved["by_parameter"].items()
        },
        "_squares": {index: list(found) for index, found in saved["squares"].items()},
        "rng": _random(saved["rng"]),
    }


def refuse_others(saved: Mapping[str, Any], settings: PowerSGDSettings) -> None:
    """Raise ``ValueError`` where what was saved cannot be gone on with."""
    for name in _SHAPING:
        theirs, own = saved[name], getattr(settings, name)
        if theirs != own:
            raise ValueError(
                f"the saved PowerSGD state has {name}={theirs}, and this one {own}; make the "
                "PowerSGDState as it was, or begin without what was saved"
            )
    rank, ranks = _place(settings)
    by_parameter = saved["by_parameter"].values()
    residuals = [*saved["error_dict"].values(), *(kept[1] for kept in by_parameter)]
    has_residuals = any(residual is not None for residual in residuals)
    if not has_residuals or None in (rank, saved["rank"]):
        return
    if (saved["rank"], saved["ranks"]) != (rank, ranks):
        raise ValueError(
            f"the saved PowerSGD state is of rank {saved['rank']} of {saved['ranks']}, and this is "
            f"rank {rank} of {ranks}; residuals are a rank's own: save and load one state a rank, "
            "or begin without what was saved"
        )


def _place(settings: PowerSGDSettings) -> tuple[int | None, int | None]:
    """Return the rank in the state's group and the group's size, if there are any."""
    if not dist.is_initialized():
        return None, None
    group = group_of(settings)
    return group.rank(), group.size()


def _plain(memory: Any) -> list[Any]:
    numel, residual, shape, q = (getattr(memory, field.name) for field in fields(memory))
    return [numel, residual, None if shape is None else list(shape), q]


def _copied(kept: list[Any]) -> list[Any]:
    numel, residual, shape, q = kept
    copies = [None if tensor is None else tensor.clone() for tensor in (residual, q)]
    return [numel, copies[0], None if shape is None else tuple(shape), copies[1]]


def _plain_random(rng: np.random.RandomState) -> list[Any]:
    state: Any = rng.get_state(legacy=True)
    _, keys, *numbers = state
    return [torch.tensor(keys.tolist()), *numbers]


def _random(saved: list[Any]) -> np.random.RandomState:
    import numpy as np

    keys, *numbers = saved
    rng = np.random.RandomState()
    rng.set_state(("MT19937", keys.numpy().astype(np.uint32), *numbers))
    return rng
