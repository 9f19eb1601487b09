"""What all kinds of records have in common, and the types of their numbers."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Ns = Annotated[int, Meta(ge=-(1 << 61), le=1 << 61)]
"""A time or a duration in ns: 73 years at most, so that three of them add up in 64 bits."""

Count = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A number of things, bytes or an index, of 64 bits."""


class Record(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", gc=False
):
    """A record, told from others in a file by its ``kind``, without the fields that are default.

    The garbage collector need not know it: nothing that it holds leads back to it.
    """
