"""Facts of process groups, which several threads ask for."""

from __future__ import annotations

from typing import Any

import pytest

from hooktrace.staging import groups
from hooktrace.staging.groups import GroupInfo, group_info


class Group:
    """What is asked of a process group."""

    def size(self) -> int:
        return 2


def test_two_threads_with_a_group_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that asks while another one does gets its own group's facts."""
    group: Any = Group()
    other: Any = Group()
    own, others = group_info(group, "cpu"), group_info(other, "cpu")

    class Interrupted(GroupInfo):
        """Facts whose comparison takes so long that another thread comes in between."""

        def __init__(self) -> None:
            pass

        def _ref(self) -> Any:  # type: ignore[override]
            groups._last = others
            return group

    interrupted = Interrupted.__new__(Interrupted)
    interrupted.device_type, interrupted.key = "cpu", own.key
    monkeypatch.setattr(groups, "_last", interrupted)
    assert group_info(group, "cpu").key == own.key != others.key
