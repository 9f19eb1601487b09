"""What tests on devices that are not there have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.versions import FAKES_COLLECTIVES


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    """Four ranks, of which only this one exists; its collectives complete inline."""
    if not FAKES_COLLECTIVES:
        pytest.skip("this torch has no collectives over fake tensors")
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield
    dist.destroy_process_group()
