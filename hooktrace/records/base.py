"""What all kinds of records have in common, and the types of their numbers."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Ns = Annotated[int, Meta(ge=-(1 << 61), le=1 << 61)]
"""A time or a duration in ns: 73 years at most, so that three of them add up in 64 bits."""

Count = Annotated[int, Meta(ge=0, le=1 << 53)]
"""A number of things or bytes, at most what a double holds to the unit."""

WallNs = Annotated[int, Meta(ge=0, lt=1 << 62)]
"""A time in ns since the Unix epoch."""

MOST_RANKS = 1 << 20
Rank = Annotated[int, Meta(ge=0, lt=MOST_RANKS)]
RankCount = Annotated[int, Meta(ge=1, le=MOST_RANKS)]
"""A rank, and how many there are; readers count those that have no file, one by one."""

Step = Annotated[int, Meta(ge=-1, lt=1 << 32)]
"""A step's number; -1 where there was none yet."""

BucketIndex = Annotated[int, Meta(ge=0, lt=1 << 20)]
"""Which bucket it is; with a step and a model it makes a key of 64 bits."""

AnyBucket = Annotated[int, Meta(ge=-1, lt=1 << 20)]
"""A bucket, or -1 for none."""

BusBytes = Annotated[float, Meta(ge=0, le=1 << 60)]
"""Bytes times a bus factor."""


class Record(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", gc=False
):
    """A record, told from others in a file by its ``kind``, without the fields that are default.

    The garbage collector need not know it: nothing that it holds leads back to it.
    """
