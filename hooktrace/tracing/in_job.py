"""A tracer as one of its job's: what the other ranks, and commands to all of them, need of it.

commands, hangs --> InJob --> the exporters that write records; recent.py; the channel
tracer.job.pause() --Client--> the hub --> all ranks --CommandResult-->
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..exporters.base import Exporter
from ..exporters.record_file import RecordFileExporter
from ..ranks.control.address import HubAddress
from ..ranks.control.client import Client
from ..ranks.control.messages import Command, CommandResult
from ..records import Batch, RunInfo
from ..records.errors import UsageError
from ..staging.calls import Clock
from ..staging.job import describe_run
from .models import TracedModels
from .pipeline import Pipeline
from .recent import RecentRecords

if TYPE_CHECKING:
    from ..ranks.channel.channel import Channel


class JobControl:
    """Each call returns a ``CommandResult``: by rank what was done, and which did not answer.

    It waits for the ranks for 2 s at most (``flush``: 25 s; ``stacks``: 2 s for each 128 ranks),
    and not for a collective.  Raises ``UsageError`` where rank 0 is not reached.  ``address``:
    asked for the hub's.
    """

    def __init__(self, address: Callable[[], HubAddress]) -> None:
        self._address = address

    def status(self) -> CommandResult:
        """Ask where each rank is."""
        return self._command(Command(verb="status"))

    def stacks(self, rank: int = -1) -> CommandResult:
        """Ask where the threads of a rank are, or of all ranks."""
        return self._command(Command(verb="stacks", rank=rank))

    def detail(self, steps: int) -> CommandResult:
        """Keep the next steps whole in the record files, on all ranks the same ones."""
        return self._command(Command(verb="detail", number=steps))

    def probe(self, steps: int) -> CommandResult:
        """Measure the compression error in the next steps, on all ranks the same ones."""
        return self._command(Command(verb="probe", number=steps))

    def pause(self) -> CommandResult:
        """Stop recording on all ranks, until ``resume``."""
        return self._command(Command(verb="pause"))

    def resume(self) -> CommandResult:
        """Record again."""
        return self._command(Command(verb="resume"))

    def flush(self) -> CommandResult:
        """Have all that was recorded so far exported."""
        return self._command(Command(verb="flush"))

    def _command(self, command: Command) -> CommandResult:
        with Client(self._address()) as client:
            return client.command(command)


class InJob:
    """The part of ``Tracer`` that is about its job."""

    clock: Clock
    align_clocks: bool
    models: TracedModels
    push: Callable[[object], None]
    _exporters: Sequence[Exporter]
    _recent: RecentRecords
    _channel: Channel | None
    _pipeline: Pipeline
    _run_id: str | None
    _anchor: tuple[int, int]

    def run_info(self) -> RunInfo:
        """Return who this process is; once torch.distributed is initialised, with its rank."""
        return describe_run(self._run_id, self._anchor)

    def clock_offset(self, host_ns: int) -> tuple[int, int] | None:
        """Return the offset to rank 0's clock and its uncertainty, ns; ``None`` if unknown."""
        channel = self._channel
        if channel is None or not self.align_clocks or channel.clock is not self.clock:
            return None
        return channel.offset_at(host_ns)

    def hear(self, listener: Callable[[Batch], None]) -> None:
        """Let a part of hooktrace have all batches, in the drain's thread."""
        self._pipeline.listeners.append(listener)

    @property
    def logdirs(self) -> list[Path]:
        """The directories of the record file exporters."""
        return [exporter.logdir for exporter in self._record_files()]

    def keep_detail(self, model: str, first: int, steps: int) -> bool:
        """Have so many steps of a model kept in detail; returns whether any exporter keeps some."""
        keeping = self._record_files()
        for exporter in keeping:
            exporter.keep_detail(model, first, steps)
        return bool(keeping)

    def _record_files(self) -> list[RecordFileExporter]:
        return [e for e in self._exporters if isinstance(e, RecordFileExporter)]

    @property
    def job(self) -> JobControl:
        """Commands to all ranks of the job, while it runs."""
        return JobControl(self._hub_address)

    def bucket_durations(self, model: str) -> list[int]:
        """Return how long the kept buckets of a model took, ns; waits for nothing."""
        return self._recent.durations(model)

    def _hub_address(self) -> HubAddress:
        channel = self._channel
        if channel is None or not channel.hub_places:
            raise UsageError(
                "this rank has no channel to the others: it begins with the first backward pass, "
                "unless Tracer(channel=False); rank 0 has to trace too"
            )
        return HubAddress(places=channel.hub_places, token=channel.token.hex(), host="", pid=0)
