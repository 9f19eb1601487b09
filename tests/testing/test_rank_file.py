"""What stands in a made-up rank's file."""

from __future__ import annotations

from hooktrace.testing.rank_file import rank_file
from tests.exporters import records_sample as sample
from tests.records.text import decode


def test_a_file_is_read_as_what_it_was_made_of() -> None:
    """The end is there where it was asked for."""
    steps = [sample.make_step(1), sample.make_step(2)]
    found = decode(rank_file([sample.make_run(), sample.make_layout()], steps))
    assert (found.run, found.assignments) == (sample.make_run(), [sample.make_layout()])
    assert found.steps == [step for step, _ in steps]
    assert [b.step for b in found.buckets] == [b.step for _, own in steps for b in own]
    assert found.closed
    assert not decode(rank_file([sample.make_run()], steps, ended=False)).closed
