"""How ranks that hang are ended: with their stacks, whenever they come to write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hooktrace.testing.check import host
from hooktrace.testing.check.rank import STACKS


class Rank:
    """A process that is asked for its stacks."""

    pid = 1

    def __init__(self, said: list[str]) -> None:
        self._said = said

    def kill(self) -> None:
        """Note that it is killed."""
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
