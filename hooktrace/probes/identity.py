"""By what the ranks know a model: its key in the job's store.

It is the model's hook, its ranks, its first bucket's shapes and some of its values, which DDP has
made equal everywhere; models that agree in all of these are known by their order.
"""

from __future__ import annotations

import zlib

import torch

from ..capture.buckets import BucketSlot
from ..ranks.job import restart_count

_VALUES = 16
MOST_KINDS = 4096


class AlikeModels:
    """Numbers models that are alike, from 1, in the order in which they begin.

    Of more than so many kinds the oldest is forgotten.  No number is given twice: those of a kind
    that is not known go on where the largest of the forgotten ones ended.
    """

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._forgotten = 0

    def number(self, key: str) -> int:
        """Return the number of one more model of a kind."""
        number = self._last[key] = self._last.pop(key, self._forgotten) + 1
        if len(self._last) > MOST_KINDS:
            self._forgotten = max(self._forgotten, self._last.pop(next(iter(self._last))))
        return number


alike = AlikeModels()


def key_of(what: str, known: object) -> str:
    """Return the key under which the ranks agree on ``what`` of a model.

    ``known``: whatever tells the model from others and is the same on all of its ranks.
    """
    key = f"hooktrace/{what}/{restart_count()}/{zlib.crc32(repr(known).encode()):08x}"
    # Models that are alike in all this begin in the same order on all ranks.
    return f"{key}/{alike.number(key)}"


def known_of(ranks: tuple[int, ...], slot: BucketSlot, parameters: list[torch.Tensor]) -> object:
    """Return what all ranks know of a DDP model at its first bucket."""
    shapes = [shape for _, shape in slot.parameters]
    # To read a device's values would wait for it; there the order in which models begin has to do.
    on_host = parameters if slot.device_type == "cpu" else []
    values = [p.detach().flatten()[:_VALUES].tolist() for p in on_host]
    return ranks, slot.model.hook, slot.dtype, shapes, values
