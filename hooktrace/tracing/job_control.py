"""Commands to all ranks of a job while it runs: ``tracer.job``.

tracer.job.pause() --Client--> the hub --> all ranks --CommandResult-->
"""

from __future__ import annotations

from collections.abc import Callable

from ..ranks.channel.messages import HubAddress
from ..ranks.control.client import Client
from ..ranks.control.messages import Command, CommandResult


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
