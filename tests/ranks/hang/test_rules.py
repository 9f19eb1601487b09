"""What is told of a hub that is gone, by the state of its process."""

from __future__ import annotations

import pytest

from hooktrace.ranks.channel.messages import State
from hooktrace.ranks.hang.diagnosis import waits_without_hub
from hooktrace.ranks.hang.rules import hub_is_gone
from tests.ranks.hang.answers import call, late, model, silent, status, waiting

STATES = [
    ("stopped", "stopped", "stands still: its process (pid 7 on a) is stopped by a signal; DDP"),
    ("gone", "died", "is no more: its process (pid 7 on a) is gone; DDP"),
    ("running", "interpreter_held", "although its process (pid 7 on a) is running; DDP"),
    (
        "unreachable",
        "network",
        "reached (TimeoutError), nor can its process (pid 7 on a); DDP",
    ),
    ("unknown", "unknown", "does not answer (TimeoutError), and nothing more is known of it; DDP"),
]


@pytest.mark.parametrize(("state", "kind", "said"), STATES)
def test_each_state_of_its_process(state: State, kind: str, said: str) -> None:
    """In the line of the log, and as the kind of a call that waits meanwhile."""
    hub = silent(0, state, 7, "a", "TimeoutError")
    assert hub_is_gone(hub).startswith("rank 0 ")
    assert said in hub_is_gone(hub)
    found = waits_without_hub(waiting(1), hub, 4)
    assert found is not None
    assert (found.kind, found.ranks, found.waiting) == (kind, (0,), (1,))
    assert " on rank 1 for rank 0, wh" in found.message


def test_a_call_in_which_the_hub_has_no_part_does_not_wait_for_it() -> None:
    """Nor does a rank that waits for nothing."""
    hub = silent(0, "stopped", 7, "a")
    theirs = call(unit="blocks.1 all-gather (forward)", order=3, group_size=2, members=(2, 4, 1))
    assert waits_without_hub(status(2, model(theirs)), hub, 4) is None
    assert waits_without_hub(late(1), hub, 4) is None
