"""What speaks against a comparison is said, and nothing where nothing does."""

from __future__ import annotations

import numpy as np
import pytest

from hooktrace.analysis.compare import Measures, compare_runs
from hooktrace.analysis.compare.measure import Series

from .jobs import as_facts, compared, measures


def doubts_of(other: Measures) -> str:
    return "; ".join(compare_runs([measures("base")], [other]).doubts)


def test_one_run_a_side_is_said_alone_of_equal_runs() -> None:
    """No step was probed, nothing is missing, nothing drifts."""
    one, same = compared().doubts
    assert one.startswith("One run a side: the intervals are of these two runs.")
    assert same.startswith("as far as the files tell, both have the same hook and set-up")
    (_,) = compared(hook="fp16_compress_hook").doubts


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"hosts": ("elsewhere",)}, "other hosts: host-0 and elsewhere"),
        ({"torch_version": "2.14"}, "other versions of torch: 2.13.0 and 2.14"),
        ({"ranks": (0, 2)}, "other: no file of rank 1 is there or readable"),
        ({"unaligned": (1,)}, "the clock of rank 1 is unknown"),
        ({"probed": 3}, "left out of all times: 3 of 63 in other"),
        ({"least_wire_bytes": 0.0}, "steps are of several kinds, which send from 0.00 to 32.00 MB"),
        ({"closed": False}, "a file has no end"),
        ({"steps": 600}, "60 steps of base and 600 of other count"),
        ({"beside": ("critic",)}, "other: critic communicates within the steps of "),
        ({"beside": ("a", "b")}, "other: a and b communicate within the steps of "),
        ({"name": "base"}, "both are the same run"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_doubtful_is_said(fields: dict[str, object], words: str) -> None:
    """Each by itself."""
    assert words in doubts_of(as_facts(measures("other", seed=1), **fields))


def test_how_often_to_repeat_is_said() -> None:
    """Of one run a side at least so often; of several that do not tell, likely."""
    assert "to tell 11.9 ms a step, likely 2 or more runs a side are needed" in doubts_of(
        measures("other", seed=1, bytes_per_second=2.5e8)
    )
    a = [measures(f"a{i}", seed=i) for i in range(2)]
    b = [measures(f"b{i}", seed=10 + i, forward_ms=f) for i, f in enumerate((40.0, 41.0))]
    (told,) = [text for text in compare_runs(a, b).doubts if "runs a side" in text]
    assert told == "to tell 0.47 ms a step, likely 19 runs a side are needed"


def test_a_run_that_still_warms_up_is_said() -> None:
    """Where its halves differ by more than the runs do."""
    one = measures("other", seed=1)
    period = one.series["period"]
    slower = period.values * np.where(np.arange(len(period.values)) < 30, 1.2, 1.0)
    changed = {**one.series, "period": Series(period.steps, slower)}
    assert "other: steps of its second half take 17 % less" in doubts_of(
        Measures(one.facts, changed, one.parts)
    )
