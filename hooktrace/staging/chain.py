"""All rounds of one call of a multi-round hook, run through the serial lane.

    submit --> LANE --start--> generator --yield--> Operation --start()--> future
                                   ^                                         |
                                   +--send(result)-- add_done_callback <-----+
                                   |
                                returns --> the chain's own future --then--> DDP

Rounds follow each other on whatever thread completes them, and the lane starts the next chain when
this one has ended.  Where callbacks run inline (NCCL) all of that happens inside ``submit``.
"""

from __future__ import annotations

import functools
from collections.abc import Generator
from typing import Any, Protocol, TypeAlias

import torch

from ..capture.calls import BucketCall
from ..records.errors import HookError
from .operations import Operation
from .result_check import wrong_result
from .sequencer import LANE

__all__ = ["Chain", "Future", "Steps", "new_future"]

Future = Any  # torch.futures.Future or torch._C.Future: `then` returns the latter
Steps: TypeAlias = Generator[Operation, torch.Tensor, torch.Tensor]


class FailureSource(Protocol):
    """What names the errors of a chain: the staged hook that it belongs to."""

    def failure(
        self, bucket: Any, stage: str, error: BaseException, call: BucketCall | None
    ) -> HookError:
        """Put a failure on the record and return the error that names it."""


class Chain:
    """One call of a multi-round hook, with the future that DDP waits for.

    ``add_done_callback`` only logs what a callback raises, so nothing here may raise: a failure
    completes the future, and the ``then`` at its end raises it where DDP sees it.
    """

    __slots__ = ("_bucket", "_call", "_future", "_generator", "_hook")

    def __init__(
        self, hook: FailureSource, generator: Steps, bucket: Any, call: BucketCall | None
    ) -> None:
        self._hook = hook
        self._generator = generator
        self._bucket = bucket
        self._call = call
        self._future = new_future(bucket.buffer())

    def submit(self) -> Future:
        """Queue the chain in the lane and return its future."""
        # Taken first: the chain may have ended, and its bucket be gone, when submit returns.
        is_last = self._bucket.is_last()
        result = self._future.then(_unwrap)
        LANE.submit(self._start)
        if is_last:
            LANE.drained()
        return result

    def _start(self) -> None:
        if self._call is not None:
            self._call.begun()
        self._advance(None, "compress")

    def _advance(self, value: torch.Tensor | None, stage: str) -> None:
        try:
            operation = self._generator.send(value)  # type: ignore[arg-type]
            stage = "wire"
            if self._call is not None:
                self._call.issued(operation)
            future = operation.start()
        except StopIteration as stop:
            self._end(stop.value, stage)
        except Exception as error:
            self._fail(stage, error)
        except BaseException as error:  # Ctrl-C: the lane must be free for what comes after it
            self._fail(stage, error)
            raise
        else:
            future.add_done_callback(functools.partial(self._arrived, operation))

    def _arrived(self, operation: Operation, future: Future) -> None:
        if self._call is not None:
            self._call.arrived()
        try:
            value = operation.result(future)
        except Exception as error:
            self._fail("wire", error)
        else:
            self._advance(value, "decompress")

    def _end(self, result: Any, stage: str) -> None:
        wrong = wrong_result(result, self._call)
        if wrong is not None:
            self._fail(stage, wrong)
            return
        try:
            if self._call is not None:
                self._call.finished()
            self._future.set_result(result)
        finally:
            LANE.release()

    def _fail(self, stage: str, error: BaseException) -> None:
        try:
            failure = self._hook.failure(self._bucket, stage, error, self._call)
            failure.__cause__ = error
            self._future.set_exception(failure)
        finally:
            LANE.release()


def _unwrap(future: Future) -> torch.Tensor:
    """Return the value, or raise the exception: DDP would read an exception as the value."""
    return future.value()  # type: ignore[no-any-return]


def new_future(tensor: torch.Tensor) -> Future:
    """Return a future that keeps its callbacks on the stream of the tensor's device."""
    device = tensor.device
    return torch.futures.Future(devices=None if device.type == "cpu" else [device])
