"""Two hosts with clocks 1000 s apart and a slow, uneven link: namespaces of this machine.

Each host has a network of its own, joined by a cable (``cable.py``) that delays packets more in one
direction than in the other, and rank 1's has a monotonic clock of its own (a time namespace).
"""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from hooktrace.analysis.timeline import arrivals, load
from hooktrace.records.files import find_records
from tests.distributed.harness import WORKER, Group, environment, launched, name_of
from tests.distributed.host_scenarios import LATE, LATE_S, far_apart

pytestmark = pytest.mark.slow

AHEAD_S = 1000
OUT_MS, BACK_MS = 3, 1
DEADLINE_S = 120


def run(*command: str) -> None:
    """Run a command of the system."""
    subprocess.run(command, check=True, capture_output=True, timeout=20)


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[str]]:
    """The names of two network namespaces that are joined; rank 0's address is 10.77.0.1."""
    names = [f"hooktrace-{os.getpid()}-{i}" for i in range(2)]
    with ExitStack() as stack:
        try:
            for name in names:
                run("ip", "netns", "add", name)
                stack.callback(run, "ip", "netns", "del", name)
            ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            for i, delay in enumerate((OUT_MS, BACK_MS)):
                inside = ("ip", "-n", names[i])
                run(*inside, "tuntap", "add", "dev", "cable", "mode", "tun")
                run(*inside, "addr", "add", f"10.77.0.{i + 1}/24", "dev", "cable")
                for device in ("lo", "cable"):
                    run(*inside, "link", "set", device, "up")
                fd = ends[i].fileno()
                end = subprocess.Popen(
                    [
                        *("ip", "netns", "exec", names[i], sys.executable),
                        *(str(WORKER.with_name("cable.py")), "cable", str(delay), str(fd)),
                    ],
                    pass_fds=[fd],
                )
                stack.callback(end.wait, 10)
                stack.callback(end.kill)
                ends[i].close()
            run("unshare", "--time", "--fork", "--monotonic", "1", "true")
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"no namespaces here ({error}); run as root, with iproute2 and util-linux")
        yield names


@pytest.fixture(scope="module")
def far(hosts: list[str]) -> Iterator[list[Any]]:
    """What both ranks of one job saw, each started on its host by torch's launcher."""
    commands = []
    for rank, name in enumerate(hosts):
        clock = ["unshare", "--time", "--fork", "--monotonic", str(AHEAD_S)] if rank else []
        commands.append(
            [
                *("ip", "netns", "exec", name, *clock),
                *(sys.executable, "-m", "torch.distributed.run"),
                *("--nnodes", "2", "--node-rank", str(rank), "--nproc-per-node", "1"),
                *("--master-addr", "10.77.0.1", "--master-port", "29400", str(WORKER)),
            ]
        )
    there = environment(GLOO_SOCKET_IFNAME="cable")
    group = Group([launched(command, there) for command in commands], 2)
    try:
        results = group.run(name_of(far_apart), DEADLINE_S)
    except BaseException:
        group.kill()
        raise
    group.end()
    facts = [pickle.loads(result) for result in results]
    yield facts
    shutil.rmtree(facts[0]["directory"], ignore_errors=True)


def test_the_offset_is_found_within_its_uncertainty(far: list[Any]) -> None:
    """Half of the round trip over the link is 2 ms, and the two ways differ by 2 ms."""
    zero, other = far
    apart_s = (other["host_ns"] - zero["host_ns"]) / 1e9
    assert apart_s == pytest.approx(AHEAD_S, abs=DEADLINE_S)
    assert zero["clocks"] == []
    for offset_ns, uncertainty_ns in other["clocks"]:
        assert (OUT_MS + BACK_MS) / 2 <= uncertainty_ns / 1e6 < 20
        assert abs(offset_ns + AHEAD_S * 10**9) <= uncertainty_ns


def test_the_late_host_is_named(far: list[Any]) -> None:
    """By both ranks while they train."""
    for rank, facts in enumerate(far):
        rows = [row for row in facts["skews"] if row[0] in LATE]
        assert len(rows) == len(LATE)
        assert [late for _, late, _ in rows].count(1) > len(LATE) / 2
        lag_s = statistics.median(lag for *_, lag in rows) / 1e9
        assert (lag_s > LATE_S / 2) == (rank == 1)


def test_their_files_are_merged_into_one_time(far: list[Any]) -> None:
    """Each bucket is placed within some ms, though no clock is, and the late host is named."""
    timeline = load(find_records(far[0]["directory"]))
    assert timeline.unaligned == []
    found = arrivals(timeline, "model0")
    late, margin = found.late()
    number = found.step - far[0]["first"]
    before = (number >= 0) & (number < LATE.start)
    assert np.median(np.abs(found.ready[1] - found.ready[0])[before]) < LATE_S * 1e9 / 2
    inside = np.isin(number, list(LATE))
    assert (late[inside] == 1).mean() > 0.5
    assert np.median(margin[inside]) > LATE_S * 1e9 / 2
