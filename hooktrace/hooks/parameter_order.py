"""Parameters by position: what is remembered of them outlives buckets, and processes.

    first backward pass: bucket 0, 1, ... --> positions 0, 1, 2, ...    later: bucket --> positions

DDP makes other buckets of the same parameters when it rebuilds them and when a job is resumed, but
each job's first pass brings the parameters in the same order.
"""

from __future__ import annotations

import weakref

import torch

from ..capture.buckets import GradBucketLike


class ParameterOrder:
    """The parameters of one model, in the order in which its first backward pass met them.

    They are known by weak reference: none is kept alive.
    """

    def __init__(self) -> None:
        self._parameters: dict[int, tuple[int, weakref.ref[torch.Tensor]]] = {}
        self._met = 0
        self._complete = False

    def owns(self, bucket: GradBucketLike) -> bool:
        """Return whether the bucket is of the same model as those before it."""
        parameters = bucket.parameters()
        if not self._complete:
            for parameter in parameters:
                position = len(self._parameters)
                self._parameters[id(parameter)] = position, weakref.ref(parameter)
            self._met += 1
            self._complete = bucket.is_last()
            return bucket.index() == self._met - 1
        _, known = self._parameters.get(id(parameters[0]), (0, None))
        return known is not None and known() is parameters[0]

    def positions(self, bucket: GradBucketLike) -> list[int]:
        """Return the positions of the bucket's parameters among the model's."""
        return [self._parameters[id(parameter)][0] for parameter in bucket.parameters()]
