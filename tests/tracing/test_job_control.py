"""A job's commands as calls, where there is no job to command."""

from __future__ import annotations

import pytest

from hooktrace.records.errors import UsageError
from hooktrace.tracing.tracer import Tracer


def test_without_a_channel_each_call_says_why() -> None:
    """Nothing was traced yet."""
    with Tracer() as tracer:
        for call in (tracer.job.status, tracer.job.pause, tracer.job.stacks):
            with pytest.raises(UsageError, match="begins with the first backward pass"):
                call()
