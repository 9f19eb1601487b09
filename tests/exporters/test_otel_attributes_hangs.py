"""What a span says of a hang."""

from __future__ import annotations

from msgspec.structs import replace

from hooktrace.exporters.otel_attributes import of_hang
from hooktrace.records import RankStacks
from tests.exporters.records_sample import HOOK, MODEL, make_hang


def test_all_that_is_known_is_said() -> None:
    """With the stacks, by rank."""
    assert of_hang(make_hang(3)) == {
        "hooktrace.hang.kind": "busy",
        "hooktrace.hang.message": make_hang(3).message,
        "hooktrace.hang.waiting": "0",
        "hooktrace.hang.ranks": "1",
        "hooktrace.hang.ended": False,
        "hooktrace.hang.stacks": "rank 1 (running)\nf.py:1 g",
        "hooktrace.model": MODEL,
        "hooktrace.hook": HOOK,
        "hooktrace.step": 3,
        "hooktrace.bucket.index": 0,
    }


def test_stacks_are_bounded_and_what_is_unknown_is_not_said() -> None:
    """A thousand ranks have long ones; where no call waits there is no bucket."""
    one = RankStacks(rank=1, pid=1, host="h", state="running", text="x" * 100)
    many = of_hang(replace(make_hang(), stacks=(one,) * 1000))
    assert len(str(many["hooktrace.hang.stacks"])) == 8192
    unit = of_hang(replace(make_hang(), unit="blocks.2 all-gather (forward)"))
    assert unit["hooktrace.unit"] == "blocks.2 all-gather (forward)"
    none = of_hang(replace(make_hang(), stacks=(), bucket=-1))
    assert {"hooktrace.hang.stacks", "hooktrace.bucket.index"}.isdisjoint(none)
