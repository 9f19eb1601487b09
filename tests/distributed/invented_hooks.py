"""The invented hooks of ``tests/testing/check`` as DDP hooks, by name; they wait for each round."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from tests.testing.check.invented import RIGHT, WRONG, Rank, named


class Memory:
    """What a hook keeps, by bucket."""

    def __init__(self) -> None:
        self.ranks: dict[int, Rank] = {}

    def of(self, bucket: int) -> Rank:
        """Return this rank's part of a bucket."""
        return self.ranks.setdefault(bucket, Rank(dist.get_rank(), dist.get_world_size(), bucket))


class Invented:
    """One of them; without a signature of strings, which DDP refuses."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    def __reduce__(self) -> Any:
        return Invented, (self.__name__,)

    def __call__(self, state, bucket):  # type: ignore[no-untyped-def]
        """Run all rounds."""
        rank = state.of(bucket.index())
        call = named(self.__name__)(rank, bucket.buffer().clone())
        answer = None
        while True:
            try:
                kind, tensor = next(call) if answer is None else call.send(answer)
            except StopIteration as end:
                rank.step += 1
                done: torch.futures.Future[Any] = torch.futures.Future()
                done.set_result(end.value)
                return done
            answer = _round(kind, tensor)


def _round(kind: str, tensor: torch.Tensor) -> torch.Tensor:
    if kind == "gather":
        rows = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(rows, tensor)
        return torch.stack(rows)
    if kind == "pass":
        rank, size = dist.get_rank(), dist.get_world_size()
        given = torch.empty_like(tensor)
        sending = dist.isend(tensor, (rank + 1) % size)
        dist.recv(given, (rank - 1) % size)
        sending.wait()
        return given
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX if kind == "max" else dist.ReduceOp.SUM)
    return tensor


def __getattr__(name: str) -> Invented:
    if name in RIGHT or name in WRONG:
        return Invented(name)
    raise AttributeError(name)
