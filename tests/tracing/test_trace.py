"""What ``trace`` takes."""

from __future__ import annotations

import pytest

from hooktrace import Tracer, trace


def test_nothing_to_trace_is_said() -> None:
    """A call in place of the hook itself is the common mistake."""
    with (
        Tracer() as tracer,
        pytest.raises(TypeError, match=r"cannot trace a NoneType; pass the hook itself"),
    ):
        trace(None, tracer=tracer)  # type: ignore[arg-type]
