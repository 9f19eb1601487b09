"""States of hooks in the checkpoints of frameworks, which one rank writes for all.

    states of all ranks --gathered--> rank 0: {"ranks": {0: bytes, 1: bytes, ...}} --> a file
    file --restore--> each rank its own

As tensors of bytes: ``torch.load(weights_only=True)`` takes them.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist


def gathered(states: Sequence[Any]) -> dict[str, Any]:
    """Return what states of hooks remember: on rank 0 of all ranks, elsewhere of this rank.

    A collective of all ranks, as writing a checkpoint is.
    """
    own = _to_tensor([state.state_dict() for state in states])
    if not dist.is_initialized():
        return {"ranks": {0: own}}
    rank = dist.get_rank()
    ranks: list[Any] | None = [None] * dist.get_world_size() if rank == 0 else None
    dist.gather_object(own, ranks)
    return {"ranks": {rank: own} if ranks is None else dict(enumerate(ranks))}


def restore(states: Sequence[Any], saved: Mapping[str, Any]) -> None:
    """Have states go on with what was gathered of this rank.

    Raises ``ValueError`` where there is nothing of this rank, or of other models.
    """
    rank = dist.get_rank() if dist.is_initialized() else 0
    ranks = saved["ranks"]
    if rank not in ranks:
        raise ValueError(
            f"the checkpoint has states of hooks of rank(s) {', '.join(map(str, ranks))} and none "
            f"of rank {rank}; begin without them, or resume with as many ranks"
        )
    loaded = _from_tensor(ranks[rank])
    if len(loaded) != len(states):
        raise ValueError(
            f"the checkpoint has states of {len(loaded)} hook(s), and here are {len(states)}; "
            "prepare all models before the checkpoint is loaded"
        )
    for own, state in zip(states, loaded, strict=True):
        own.load_state_dict(state)


def _to_tensor(states: list[Any]) -> torch.Tensor:
    """Return the bytes of a file, in which tensors that share memory have it once."""
    file = io.BytesIO()
    torch.save(states, file)
    return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)


def _from_tensor(saved: torch.Tensor) -> list[Any]:
    file = io.BytesIO(saved.cpu().numpy().tobytes())
    states: list[Any] = torch.load(file, weights_only=True)
    return states
