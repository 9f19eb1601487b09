"""How ranks that hang are ended: when, and with their stacks, whenever they come to write them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hooktrace.testing.check import host
from hooktrace.testing.check.rank import STACKS

RANK_0, RANK_1 = 10, 11
"""What the host waits for."""


class Rank:
    """A process that is asked for its stacks."""

    pid = 1
    exitcode = 3

    def __init__(self, said: list[str], sentinel: int = 0) -> None:
        self._said = said
        self.sentinel = sentinel

    def kill(self) -> None:
        self._said.append("killed")

    def join(self) -> None:
        """Be over."""


@pytest.mark.parametrize(
    ("writes", "killed_after"),
    [
        ({0: (1, 1), 1: (1, 1)}, 2),
        ({0: (1, 1), 1: (30, 30)}, 31),  # waits for its core
        ({0: (1, 1), 1: (7, 9)}, 10),  # loses its core while it writes
        ({0: (1, 1)}, 50),  # is stopped
    ],
)
def test_a_rank_is_not_killed_before_it_has_written_its_stacks(
    writes: dict[int, tuple[int, int]],
    killed_after: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long that takes, up to five seconds; ``writes``: at which looks, by rank."""
    said: list[str] = []

    class Time:
        now_s = 0.0
        looks = 0

        @classmethod
        def monotonic(cls) -> float:
            return cls.now_s

        @classmethod
        def sleep(cls, seconds: float) -> None:
            cls.looks += 1
            cls.now_s = cls.looks * seconds
            for rank, (first, last) in writes.items():
                if first <= cls.looks <= last:
                    with (tmp_path / STACKS.format(rank)).open("a") as stacks:
                        stacks.write("a line\n")

    monkeypatch.setattr(host, "time", Time)
    monkeypatch.setattr("os.kill", lambda pid, number: said.append("asked"))
    for rank in range(2):
        (tmp_path / STACKS.format(rank)).touch()
    ranks: Any = {rank: Rank(said) for rank in range(2)}
    host._stop(ranks, tmp_path)
    assert said == ["asked", "asked", "killed", "killed"]
    assert Time.looks == killed_after


@pytest.mark.parametrize(
    ("gone_at_s", "waits_s"),
    [
        (None, [60.0]),
        (10.0, [60.0, 3.0]),
        (58.5, [60.0, 1.5]),
    ],
)
def test_ranks_are_ended_at_the_deadline_and_soon_after_one_that_is_gone(
    gone_at_s: float | None, waits_s: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others cannot finish without it; ``waits_s``: for how long they are waited for."""
    now_s, waited_s, stopped = 0.0, [], []

    def wait(_: object, timeout_s: float) -> list[int]:
        nonlocal now_s
        waited_s.append(timeout_s)
        if gone_at_s is None or now_s:
            now_s += timeout_s
            return []
        now_s = gone_at_s
        return [RANK_1]

    monkeypatch.setattr(host, "time", SimpleNamespace(monotonic=lambda: now_s))
    monkeypatch.setattr(host, "wait", wait)
    monkeypatch.setattr(host, "_stop", lambda ranks, _: stopped.extend(ranks))
    job: Any = SimpleNamespace(timeout_s=60.0)
    asker: Any = object()
    ranks: Any = [Rank([], sentinel) for sentinel in (RANK_0, RANK_1)]
    ends = host.Host(job, asker, tmp_path)._wait(ranks, tmp_path)
    assert waited_s == waits_s
    assert stopped == ([0, 1] if gone_at_s is None else [0])
    assert ends[0].code is None
    assert ends[1].code == (None if gone_at_s is None else 3)
