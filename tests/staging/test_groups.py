"""Facts of process groups, which several threads ask for."""

from __future__ import annotations

from typing import Any

import pytest
import torch.distributed as dist

from hooktrace.staging import groups
from hooktrace.staging.groups import GroupInfo, group_info, members_of


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


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([0, 1, 2, 3], (0, 4, 1)),
        ([2, 3], (2, 4, 1)),
        ([1, 3], (1, 4, 2)),
        ([5], (5, 6, 1)),
        ([0, 1, 3], None),
        ([3, 1], None),
        ([], None),
    ],
)
def test_a_group_of_a_mesh_is_a_range(
    ranks: list[int], expected: tuple[int, int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is made up of one that is not."""
    group: Any = object()
    monkeypatch.setattr(dist, "get_process_group_ranks", lambda asked: ranks)
    assert members_of(group) == expected
    assert expected is None or [*range(*expected)] == ranks


def test_of_a_group_that_is_gone_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch raises then."""
    group: Any = object()
    assert members_of(group) is None
