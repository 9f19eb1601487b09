"""Ranks are started, and end: by themselves, by an error, by a signal, at their deadline."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import torch.distributed as dist

from hooktrace.testing.ranks import RankError, run_ranks

pytestmark = pytest.mark.slow


def _in_its_group(factor: int) -> tuple[int, int]:
    return factor * dist.get_rank(), dist.get_world_size()


def _fails(how: str, told: Path) -> None:
    """Fail on rank 1; rank 0 would wait for ever."""
    (told / f"pid{dist.get_rank()}").write_text(str(os.getpid()))
    if dist.get_rank() == 0 or how == "waits":
        time.sleep(3600)
    if how == "raises":
        raise ValueError("no data")
    os.kill(os.getpid(), signal.SIGKILL)


def _is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_each_ranks_result_is_returned() -> None:
    """In their order; ranks are in a process group."""
    assert run_ranks(2, _in_its_group, 10) == [(0, 2), (10, 2)]


@pytest.mark.parametrize(
    ("how", "said"),
    [("raises", "rank 1: ValueError: no data"), ("is killed", "rank 1: killed by SIGKILL")],
)
def test_a_rank_that_fails_is_named_and_ends_the_others(
    how: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With its reason in one line; what torch says of it is in the directory of logs."""
    with pytest.raises(RankError) as caught:
        run_ranks(2, _fails, how, tmp_path, logs=tmp_path)
    assert (str(caught.value), caught.value.rank) == (said, 1)
    assert (caught.value.logs / "error.json").exists() == (how == "raises")
    assert capfd.readouterr().err == ""
    assert not any(_is_there(int(file.read_text())) for file in tmp_path.glob("pid*"))


def test_ranks_are_ended_at_their_deadline(tmp_path: Path) -> None:
    """And it is said that the machine may be too busy."""
    with pytest.raises(TimeoutError, match="did not end within 15 s; the machine is too busy"):
        run_ranks(1, _fails, "waits", tmp_path, deadline_s=15.0)
    assert not any(_is_there(int(file.read_text())) for file in tmp_path.glob("pid*"))
