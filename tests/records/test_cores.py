"""The number of cores, on systems that tell in different ways."""

from __future__ import annotations

import os

import pytest

from hooktrace.records.cores import usable_cores


def test_each_system_tells_in_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process's own count where Python knows it, else its affinity, else all cores."""
    monkeypatch.setattr(os, "process_cpu_count", lambda: 3, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 5, 6}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert usable_cores() == 3
    monkeypatch.delattr(os, "process_cpu_count")
    assert usable_cores() == 4
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores() == 8
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1
