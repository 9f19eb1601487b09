"""What holds for all tests: nothing outlives its test, and what takes longest comes first."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist
from hypothesis import HealthCheck, settings

from tests import leaks
from tests.distributed.harness import launchers
from tests.versions import KEEPS_SHARDS, OF_SHARDS

HERE = Path(__file__).parent
LONGEST = (
    "distributed/test_tune.py",
    "testing/check/test_oracles.py",
    "docs/test_commands.py",
    "docs/test_installs.py",
    "integrations/test_lightning.py",
    "distributed/test_hosts.py",
    "integrations/test_transformers.py",
    "integrations/test_ray.py",
    "distributed/test_check.py",
    "integrations/test_accelerate.py",
    "commands/test_bench.py",
    "distributed/test_wire_against_profiler.py",
    "distributed/test_demo.py",
    "distributed/test_check_units.py",
    "distributed/test_run_sharded.py",
    "distributed/test_run.py",
    "distributed/test_hangs.py",
    "distributed",
    "browser",
)
"""What takes tens of seconds, or has single tests that do, in the order in which it runs."""

collect_ignore = [] if KEEPS_SHARDS else list(OF_SHARDS)

# How long an example takes says how busy the machine is.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the longest come first; all others stay in their order."""

    def place(item: pytest.Item) -> int:
        path = item.path.relative_to(HERE)
        found = (i for i, long in enumerate(LONGEST) if path.is_relative_to(long))
        return next(found, len(LONGEST))

    items.sort(key=place)


def pytest_configure(config: pytest.Config) -> None:
    """Let a terminated run clean up as after Ctrl-C: ranks live in sessions of their own."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a tracer open, a drain running, or a process."""
    tracers, children = leaks.open_tracers(), leaks.children()
    yield
    left = leaks.open_tracers() - tracers
    for leak in left:
        leak.close(1)
    assert not left, "the test left a tracer open"
    assert not leaks.drains(), "the test left a drain running"
    processes = leaks.children() - children - launchers
    assert not processes, [leaks.command(pid) for pid in processes]


@pytest.fixture
def alone() -> Iterator[None]:
    """A default group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    gc.collect()  # models that hold it
    dist.destroy_process_group()
