"""The benchmark as a whole: its groups, and which of them run."""

from __future__ import annotations

import pytest

from hooktrace.commands.bench.command import GROUPS, chosen
from hooktrace.records.errors import UsageError


def test_without_a_name_all_but_those_on_demand() -> None:
    """What needs Chromium, gigabytes of files or a thousand connections is asked for by name."""
    assert set(GROUPS) - set(chosen([])) == {
        *("hooks", "timeline", "report", "ranks", "summaries", "whatif"),
    }


def test_named_groups_come_once_in_the_order_of_their_names() -> None:
    """A name may be said twice."""
    assert list(chosen(["wire", "hooks", "wire"])) == ["wire", "hooks"]


def test_a_wrong_name_is_answered_by_the_right_ones() -> None:
    """The error lists what may be passed."""
    with pytest.raises(UsageError, match=r"'wier'; pass --only per-bucket, .*wire"):
        chosen(["wire", "wier"])
