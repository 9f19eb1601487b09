"""The host's clock."""

from __future__ import annotations

from collections.abc import Callable

Clock = Callable[[], int]
"""Returns integer nanoseconds that never go back."""
