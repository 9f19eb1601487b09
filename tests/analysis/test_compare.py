"""Comparisons as a whole; what is said of each pair of jobs is in ``golden/compared-*.txt``."""

from __future__ import annotations

from dataclasses import replace as like
from pathlib import Path

import numpy as np
import pytest

from hooktrace.analysis.compare import Measures, compare_runs, measure
from hooktrace.analysis.compare.measure import grouping, step_table
from hooktrace.analysis.run.parts import KINDS
from hooktrace.analysis.run.waits import ONE_RANK
from tests.analysis.compare.jobs import BASE, as_facts, compared, measures
from tests.analysis.jobs import plain
from tests.analysis.report.jobs import write_changed
from tests.analysis.runs import run_in


def test_only_on_a_link_a_hook_stops_paying() -> None:
    """Half of the bytes, for 2 ms more of the hook; a job of one rank sends nothing."""
    half = measures("other", seed=1, codec_ms=1.0, wire_share=0.5, hook="fp16_compress_hook")
    alone = [as_facts(one, world_size=1) for one in (measures("base"), half)]
    found = [compare_runs(a, b) for a, b in ((measures("base"), half), alone)]
    pays = [one.pays_below_bytes_per_second for one in found]
    assert [limit is None for limit in pays] == [False, True]


def test_without_buckets_step_times_are_compared() -> None:
    """Of files whose limit left the detail out."""
    sides = []
    for one in (measures("base"), measures("other", seed=1)):
        none = one.parts._replace(period=one.parts.period * np.nan).of_known()
        sides.append(Measures(one.facts, one.series, none))
    found = compare_runs(sides[0], sides[1])
    assert found.quantity("period") == compared().quantity("period")
    assert found.step is not None
    assert (found.step.verdict, [one.key for one in found.parts]) == ("unknown", [])


def test_wire_is_whole_where_waits_are_unknown_in_one() -> None:
    """Rather than to compare a wait with what may have one in it."""
    other = as_facts(measures("other", seed=1), split_unknown=ONE_RANK)
    found = compare_runs(measures("base"), other)
    keys = [one.key for one in found.parts]
    assert "wire" in keys
    assert not {"wait", "transfer"} & set(keys)
    assert "because in other one rank waits for nobody" in found.limits[0]
    alike = compare_runs(other, other)
    assert not any("wire is not split" in limit for limit in alike.limits)


def test_an_plain_hook_has_no_stages_to_compare(tmp_path: Path) -> None:
    """So that nothing is called transfer beside what has everything in it."""
    write_changed(tmp_path, like(BASE, seed=1), plain)
    one = measure(run_in(tmp_path), BASE.model, "other")
    assert one is not None
    found = compare_runs(measures("base"), one)
    assert [part.key for part in found.parts] == ["exposed", "all_calls", "compute"]
    assert not [q for q in found.quantities if q.key in KINDS]
    assert found.step is not None
    (text,) = [text for text in found.limits if "is a plain hook" in text]
    assert text.endswith("to see them, use hooktrace.hooks.allreduce_hook in place of torch's")
    assert {"hook", "future_wait"} <= set(grouping(one, one))


def test_parts_of_each_step_add_up_to_it() -> None:
    """However they are grouped; and their differences to that of both sides' steps."""
    found = compared(bytes_per_second=2.5e8, late_ms={1: 3.0})
    apart = [part.difference.apart for part in found.parts]
    assert found.step is not None
    assert sum(apart) == pytest.approx(found.step.difference, abs=5)
    one = measures("base", bytes_per_second=2.5e8)
    for of in (grouping(one, one), {"exposed": KINDS}):
        whole, *parts = step_table(one, of).values()
        np.testing.assert_allclose(sum(parts), whole)
