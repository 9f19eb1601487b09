"""What a record of other collectives adds up to."""

from __future__ import annotations

from hooktrace.records import OtherCollective, OtherCollectives


def made(size: int | None, *, of_ddp: bool = False) -> OtherCollective:
    return OtherCollective(
        name="all_reduce", wire_bytes=size, issued_ns=1, done_ns=2, thread="MainThread",
        where="train.py:1", of_ddp=of_ddp,
    )  # fmt: skip


def test_ddps_own_and_those_that_are_not_listed() -> None:
    """DDP's are no others; one without a size leaves the sum unknown."""
    few = (made(4), made(100, of_ddp=True), made(8))
    record = OtherCollectives(
        model="net", step=2, time_ns=0, until_ns=9, collectives=few, more=3, more_bytes=30
    )
    assert (record.count, record.wire_bytes) == (5, 42)
    unknown = OtherCollectives(
        model="net", step=2, time_ns=0, until_ns=9, collectives=(made(None),)
    )
    assert (unknown.count, unknown.wire_bytes) == (1, None)
