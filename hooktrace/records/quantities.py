"""The types of a record's numbers, with the bounds that reading a line checks."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Ns = Annotated[int, Meta(ge=-(1 << 61), le=1 << 61)]
"""A time or a duration in ns: 73 years at most, so that three of them add up in 64 bits."""

Count = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A number of things, bytes or an index, of 64 bits."""
