"""Facts of process groups, which several threads ask for."""

from __future__ import annotations

from typing import Any

import pytest
import torch.distributed as dist

from hooktrace.staging.groups import members_of


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
