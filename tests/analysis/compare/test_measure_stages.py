"""Which stages are compared between which hooks."""

from __future__ import annotations

import numpy as np

from hooktrace.analysis.compare import Measures, compare_runs
from hooktrace.analysis.compare.measure import (
    exposed_parts,
    grouping,
    is_opaque,
    step_table,
)
from hooktrace.analysis.run.parts import KINDS

from .jobs import measures


def opaque(one: Measures) -> Measures:
    """Return measures of which nobody saw more than that a call was pending."""
    exposed, busy = (np.zeros_like(x) for x in (one.parts.exposed_in, one.parts.busy_in))
    exposed[KINDS.index("pending")] = one.parts.exposed_in.sum(axis=0)
    busy[KINDS.index("pending")] = 1e6
    return Measures(one.facts, one.series, one.parts._replace(exposed_in=exposed, busy_in=busy))


def test_stages_that_occur_are_compared_each() -> None:
    """Of two hooks whose stages are seen."""
    of = grouping([measures("base"), measures("other", seed=1)])
    assert list(of) == ["compress", "decompress", "wait", "transfer"]


def test_an_opaque_hook_has_no_stages_to_compare() -> None:
    """So that nothing is called transfer beside what has everything in it."""
    one = opaque(measures("other", seed=1))
    assert is_opaque(one)
    assert not is_opaque(measures("base"))
    found = compare_runs([measures("base")], [one])
    assert [part.key for part in found.parts] == ["exposed", "all_calls", "compute"]
    assert not [q for q in found.quantities if q.key in KINDS]
    assert found.step is not None
    (text,) = [text for text in found.limits if "is opaque" in text]
    assert text.endswith("to see them, use hooktrace.hooks.allreduce_hook in place of torch's")
    assert list(grouping([one, one])) == ["pending"]


def test_parts_of_each_step_add_up_to_it() -> None:
    """However they are grouped."""
    one = measures("base", bytes_per_second=2.5e8)
    for of in (grouping([one]), {"exposed": KINDS}):
        table = step_table(one, of)
        np.testing.assert_allclose(sum(table.values()), one.parts.period)
    assert exposed_parts(one, ("transfer",)).shape == (59, 8)
