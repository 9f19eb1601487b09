"""Each kind of hang from what ranks say of themselves, and where each row must be silent.

``python -m tests.ranks.hang.test_diagnosis`` writes what is told of each job to ``hangs.txt``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from hooktrace.ranks.channel.messages import State
from hooktrace.ranks.hang.diagnosis import RULES, Rule, diagnose, hub_is_gone, waits_without_hub
from hooktrace.ranks.hang.messages import Hang
from hooktrace.ranks.hang.snapshot import Snapshot, snapshot
from tests.ranks.hang.answers import CALMS, JOBS, NEARBY, Job, late, silent, status, unit, waiting
from tests.ranks.hang.answers import model as model_of

GOLDEN = Path(__file__).with_name("hangs.txt")


def told() -> Iterator[str]:
    """What is told of each job, and by a rank alone of a hub that is gone, whole."""
    for name, one in JOBS.items():
        yield said(name, diagnose(*one.rounds()))
    for state in get_args(State):
        hub = silent(0, state, 7, "a", "TimeoutError")
        yield said(f"the hub: {state}", waits_without_hub(waiting(1), hub, 4))
        yield f"    {hub_is_gone(hub)}\n"


def said(name: str, found: Hang | None) -> str:
    assert found is not None, name
    excused = ", excused" if found.excused else ""
    return f"{name}: {found.kind} of {list(found.ranks)}{excused}\n    {found.message}\n"


def test_what_is_told_of_each_job() -> None:
    """The kind, which ranks, whether these may take long, and the sentence with its fix."""
    assert "".join(told()) == GOLDEN.read_text()


def seen(one: Job) -> Snapshot:
    found = snapshot(*one.rounds())
    assert found is not None
    return found


@pytest.mark.parametrize(("kind", "clause"), NEARBY, ids=": ".join)
def test_a_row_is_silent_nearby(kind: str, clause: str) -> None:
    """Asked by itself, whatever the rows above would tell."""
    (rule,) = (rule for rule in RULES if rule.kind == kind and clause in rule.not_where)
    assert rule.finds(seen(NEARBY[kind, clause])) is None


def test_all_rows_and_clauses_of_the_table_are_tried() -> None:
    """Each row is the first that fits one of the jobs; one without a clause always fits."""

    def told_by(one: Job) -> Rule:
        found = seen(one)
        rules = (rule for rule in RULES if rule.outside or found.calls)
        return next(rule for rule in rules if rule.finds(found) is not None)

    fitting = [told_by(one) for one in JOBS.values()]
    assert [rule for rule in RULES if rule not in fitting] == []
    assert set(NEARBY) == {(rule.kind, clause) for rule in RULES for clause in rule.not_where}
    assert [rule.kind for rule in RULES if not rule.not_where] == ["unknown"]


@pytest.mark.parametrize("one", CALMS.values(), ids=CALMS)
def test_no_hang(one: Job) -> None:
    assert diagnose(*one.rounds()) is None


def test_a_call_in_which_the_hub_has_no_part_does_not_wait_for_it() -> None:
    """Nor does a rank that waits for nothing."""
    hub = silent(0, "stopped", 7, "a")
    theirs = status(2, model_of(unit(group_size=2, members=(2, 4, 1))))
    assert waits_without_hub(theirs, hub, 4) is None
    assert waits_without_hub(late(1), hub, 4) is None


if __name__ == "__main__":
    GOLDEN.write_text("".join(told()))
