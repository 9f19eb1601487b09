"""Facts of process groups."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch.distributed as dist

from hooktrace.staging.groups import members_of


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [([2, 3], (2, 4, 1)), ([1, 3], (1, 4, 2)), ([5], (5, 6, 1)), ([0, 1, 3], None), ([3, 1], None)],
)
def test_a_group_of_a_mesh_is_a_range(ranks: list[int], expected: Any) -> None:
    """And nothing is made up of one that is not."""
    group: Any = object()
    with mock.patch.object(dist, "get_process_group_ranks", return_value=ranks):
        assert members_of(group) == expected
