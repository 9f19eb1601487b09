"""How long what a span says of a hang may be; all else is in ``golden/``."""

from __future__ import annotations

from msgspec.structs import replace

from hooktrace.exporters.otel_attributes import of_hang
from hooktrace.records import RankStacks
from tests.exporters.records_sample import make_hang


def test_stacks_are_bounded_and_what_is_unknown_is_not_said() -> None:
    """A thousand ranks have long ones; where no call waits there is no bucket."""
    one = RankStacks(rank=1, pid=1, host="h", state="running", text="x" * 100)
    many = of_hang(replace(make_hang(), stacks=(one,) * 1000))
    assert len(str(many["hooktrace.hang.stacks"])) == 8192
    unit = of_hang(replace(make_hang(), unit="blocks.2 all-gather (forward)"))
    assert unit["hooktrace.unit"] == "blocks.2 all-gather (forward)"
    none = of_hang(replace(make_hang(), stacks=(), bucket=-1))
    assert {"hooktrace.hang.stacks", "hooktrace.bucket.index"}.isdisjoint(none)
