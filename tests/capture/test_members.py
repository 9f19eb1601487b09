"""The ranks of a process group in three numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch.distributed as dist

from hooktrace.capture.members import members_of


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
