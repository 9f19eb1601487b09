"""A tracer's options for hangs that cannot work are refused when it is made."""

from __future__ import annotations

import pytest

from hooktrace import Tracer


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), 1e300])
def test_no_time_to_wait(seconds: float) -> None:
    """The error says what to pass."""
    with pytest.raises(ValueError, match="pass seconds, or None"):
        Tracer(hang_after_s=seconds)


def test_unknown_action() -> None:
    """The error has the choices."""
    with pytest.raises(ValueError, match="pass record, warn, dump, abort"):
        Tracer(on_hang="explode")  # type: ignore[arg-type]
