"""A TensorBoard event file written by the caller's own thread.  Importing this imports tensorboard.

tensorboard's ``EventFileWriter``, which ``SummaryWriter`` stands on, cannot count what a full disk
loses.  Its own thread writes: the first ``flush`` that fails returns as if it had not, half an
event stays in the file, and ``close`` is silent.  The drain is a thread already, so here events are
collected and written as one block, and errors come back to the caller.  Only tensorboard's record
framing and protocol buffers are used: neither torch nor TensorFlow.
"""

from __future__ import annotations

import io
import os
import socket
import time
from array import array
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.record_writer import RecordWriter

from .append_file import AppendFile
from .tensorboard_tags import meaning_of

_numbers = count()  # with leading zeros in names: TensorBoard reads files in the order of these
_TEXT = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
_SCALARS = SummaryMetadata.PluginData(plugin_name="scalars")
_GROWTH = np.log(1.1)
"""Width of a histogram's bins on a logarithmic scale: each is 10 % wider than the one before."""


class EventFile:
    """A new event file in ``directory``; what a tag means stands with its first scalar.

    Raises ``OSError`` where the file cannot be made or written.
    """

    def __init__(self, directory: Path) -> None:
        self._known: set[str] = set()
        now = time.time()
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}"
        self._file = AppendFile(directory / f"{name}.{next(_numbers):06d}.hooktrace")
        self._block = io.BytesIO()
        self._records = RecordWriter(self._block)
        self._add(Event(wall_time=now, file_version="brain.Event:2"))
        self.flush()

    def begin(self, first_step: int) -> None:
        """Say at which step the run begins, once that is known.

        TensorBoard takes what came before, in an earlier file of the directory or in this one,
        about ``first_step`` and later steps as overtaken, so a restarted run does not zigzag.
        """
        start = SessionLog(status=SessionLog.START)
        self._add(Event(wall_time=time.time(), step=first_step, session_log=start))

    def scalars(self, step: int, wall_ns: int, values: Iterable[tuple[str, float]]) -> None:
        """Add (tag, value) pairs as one event."""
        event = Event(wall_time=wall_ns / 1e9, step=step)
        add = event.summary.value.add  # made in place: a message that is given is copied
        for tag, value in values:
            about = None
            if tag not in self._known:
                self._known.add(tag)
                about = SummaryMetadata(plugin_data=_SCALARS, summary_description=meaning_of(tag))
            add(tag=tag, simple_value=value, metadata=about)
        self._add(event)

    def histogram(self, step: int, wall_ns: int, tag: str, durations_ns: array[int]) -> None:
        """Add one histogram, in ms, of durations; at least one, none below 0."""
        values = np.array(durations_ns) / 1e6
        # Log-spaced bins keep both a 50 µs stage and its 40 ms outlier readable.
        bins = np.floor(np.log(np.maximum(values, 1e-9)) / _GROWTH).astype(int)
        lowest = int(bins.min())
        counts = np.bincount(bins - lowest)
        limits = np.exp((np.arange(len(counts)) + lowest + 1) * _GROWTH)
        histogram = HistogramProto(
            min=values.min(),
            max=values.max(),
            num=len(values),
            sum=values.sum(),
            sum_squares=np.square(values).sum(),
            bucket_limit=limits,
            bucket=counts,
        )
        self._value(step, wall_ns, Summary.Value(tag=tag, histo=histogram))

    def text(self, step: int, wall_ns: int, tag: str, markdown: str) -> None:
        """Add one text in Markdown."""
        value = [markdown.encode("utf-8", "replace")]
        tensor = TensorProto(dtype=DT_STRING, tensor_shape=TensorShapeProto(), string_val=value)
        self._value(step, wall_ns, Summary.Value(tag=tag, tensor=tensor, metadata=_TEXT))

    def flush(self) -> None:
        """Write what was added as one block.  Raises ``OSError``; the block is lost then."""
        block = self._block.getvalue()
        self._block.seek(0)
        self._block.truncate()
        if block:
            self._file.append(block)

    def close(self) -> None:
        """Let go of the file without writing what was not flushed."""
        self._file.close()

    def _value(self, step: int, wall_ns: int, value: Any) -> None:
        self._add(Event(wall_time=wall_ns / 1e9, step=step, summary=Summary(value=[value])))

    def _add(self, event: Any) -> None:
        self._records.write(event.SerializeToString())
