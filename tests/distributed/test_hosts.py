"""Two hosts with clocks 1000 s apart and a slow, uneven link: namespaces of this machine.

Each host has a network of its own, joined by a cable (``cable.py``) that delays packets more in one
direction than in the other, and rank 1's has a monotonic clock of its own (a time namespace).
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import hooktrace
from hooktrace import Tracer, hooks
from hooktrace.analysis.run import delays, load
from hooktrace.exporters import RecordFileExporter
from hooktrace.records.files import find_records
from tests.distributed.harness import WORKER, Group, environment, launched, name_of
from tests.distributed.models import backward, make_ddp, shared_folder
from tests.distributed.test_hangs import FOLDER, HANGS_AT, read, steps_until
from tests.distributed.test_skew import KNOWN_S, all_know
from tests.ranks.channel import jobs
from tests.ranks.channel.jobs import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.long]

LATE_S = 0.05

LATE = range(10, 20)
"""Steps in which rank 1 is late, from the first on whose clocks are known."""


def far_apart(rank: int) -> dict[str, Any]:
    """Train until the clocks are known, and on; return clocks, skews and the first step."""
    directory = shared_folder()  # the hosts share a disk
    ddp = make_ddp()
    exporter = RecordFileExporter(directory)
    with Tracer([exporter], error_every=1) as tracer:
        hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        first, end = 0, time.monotonic() + KNOWN_S
        while first < 12 or not all_know(tracer):
            ddp(torch.ones(2, 32)).sum().backward()
            first += 1
            assert time.monotonic() < end, "the clocks are not known"
        for step in range(LATE.stop):
            if step in LATE and rank == 1:
                time.sleep(LATE_S)
            ddp(torch.ones(2, 32)).sum().backward()
        skews = [(s.step - first, s.late_rank, s.arrival_delay_ns) for s in tracer.skews()]
        clocks = [(c.offset_ns, c.uncertainty_ns) for c in tracer.clocks()]
    dist.barrier()
    return {
        "skews": [row for row in skews if row[0] >= 0],
        "clocks": clocks,
        "host_ns": time.perf_counter_ns(),
        "directory": directory,
        "first": first,
    }


OUT_MS, BACK_MS = 3, 1

DEADLINE_S = 120


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=20)


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[str]]:
    """The names of two network namespaces that are joined; rank 0's is 10.77.0.1, or fd77::1."""
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
                run(*inside, "addr", "add", f"fd77::{i + 1}/64", "dev", "cable", "nodad")
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


AHEAD_S = 1000


def on_host(
    hosts: list[str], rank: int, port: int, *script: str, before: Sequence[str] = ()
) -> list[str]:
    """Return what starts a rank by torch's launcher; ``before``: of that, on its host."""
    return [
        *("ip", "netns", "exec", hosts[rank], *before, sys.executable, "-m"),
        *("torch.distributed.run", "--nnodes", "2", "--node-rank", str(rank)),
        *("--nproc-per-node", "1", "--master-addr", "10.77.0.1", "--master-port", str(port)),
        *script,
    ]


def commands(hosts: list[str], port: int) -> list[list[str]]:
    """Return what starts a job of one rank on each host, the second with another clock."""
    clock = ("unshare", "--time", "--fork", "--monotonic", str(AHEAD_S))
    return [
        on_host(hosts, rank, port, str(WORKER), before=before)
        for rank, before in enumerate([(), clock])
    ]


@pytest.fixture(scope="module")
def far(hosts: list[str]) -> Iterator[list[Any]]:
    """What both ranks of one job saw, each started on its host by torch's launcher."""
    there = environment(GLOO_SOCKET_IFNAME="cable")
    group = Group([launched(command, there) for command in commands(hosts, 29400)], 2)
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
        delay_s = statistics.median(delay for *_, delay in rows) / 1e9
        assert (delay_s > LATE_S / 2) == (rank == 1)


def test_their_files_are_merged_into_one_time(far: list[Any]) -> None:
    """Each bucket is placed within some ms, though no clock is, and the late host is named."""
    run = load(find_records(far[0]["directory"]))
    assert run.unaligned == []
    zero, other = (track.buckets for track in run.tracks)
    assert np.array_equal((zero.step, zero.bucket), (other.step, other.bucket))
    behind_other, behind_zero = (found.ns for found in delays(run, "model0"))
    number = zero.step - far[0]["first"]
    before, inside = (number >= 0) & (number < LATE.start), np.isin(number, list(LATE))
    assert np.median(np.maximum(behind_other, behind_zero)[before]) < LATE_S * 1e9 / 2
    assert (behind_zero[inside] > 0).mean() > 0.5
    assert np.median(behind_zero[inside]) > LATE_S * 1e9 / 2


class Bare:
    """Ranks that have the channel and nothing else, two on each host."""

    def __init__(self, hosts: list[str], addresses: tuple[str, str], port: int) -> None:
        self.port = port
        self._hosts = hosts
        self._ranks = [
            subprocess.Popen(
                [
                    *("ip", "netns", "exec", hosts[rank // 2], sys.executable, "-m"),
                    *(jobs.__name__, str(rank), "4", addresses[rank // 2], str(port)),
                ],
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(4)
        ]

    def ask(self, rank: int) -> dict[str, Any]:
        process = self._ranks[rank]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        facts: dict[str, Any] = json.loads(process.stdout.readline())
        return facts

    def comes_to(self, rank: int, *, answers: list[int], silent: dict[str, str]) -> bool:
        """Return whether a rank is the hub, once it gets these answers, within a minute."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            facts = self.ask(rank)
            if (facts["answers"], facts["silent"]) == (answers, silent):
                return bool(facts["is_hub"])
            time.sleep(0.2)
        raise AssertionError(f"rank {rank} has {facts}")

    def between_hosts(self) -> int:
        """Return how many connections rank 0's host has to the other, but those of the store."""
        command = ("ip", "netns", "exec", self._hosts[0], "ss", "-Htn", "state", "established")
        said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=20)
        lines = [
            line for line in said.stdout.splitlines() if "77::2]" in line or "10.77.0.2" in line
        ]
        return sum(f":{self.port} " not in line for line in lines)

    def __enter__(self) -> Bare:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._ranks:
            with process:
                process.kill()


@contextmanager
def cut(hosts: list[str]) -> Iterator[None]:
    """The cable, until the end of the ``with`` block."""
    run("ip", "-n", hosts[1], "link", "set", "cable", "down")
    try:
        yield
    finally:
        run("ip", "-n", hosts[1], "link", "set", "cable", "up")
        run("ip", "-n", hosts[1], "addr", "replace", "fd77::2/64", "dev", "cable", "nodad")


def cut_off(rank: int) -> None:
    """Train until the other host is not reached any more."""
    ddp = steps_until(rank)
    Path(os.environ[FOLDER], f"met{rank}").touch()
    while True:
        backward(ddp, rank, HANGS_AT)


def test_a_hang_at_a_cut_cable_is_told_on_both_sides(hosts: list[str], tmp_path: Path) -> None:
    """The hub's names the other rank, which has rank 0 named by itself."""
    there = environment(GLOO_SOCKET_IFNAME="cable", **{FOLDER: tmp_path})
    group = Group([launched(command, there) for command in commands(hosts, 29402)], 2)
    try:
        group.begin(name_of(cut_off))
        assert wait_for(lambda: len([*tmp_path.glob("met*")]) == 2, DEADLINE_S), group.output()
        with cut(hosts):
            told = [tmp_path / str(rank) for rank in range(2)]
            assert wait_for(lambda: all(map(read, told)), DEADLINE_S), group.output()
    finally:
        group.kill()
    for rank, (record, *_) in enumerate(map(read, told)):
        assert (record.kind, record.ranks, record.waiting) == ("network", (1 - rank,), (rank,))
        assert f" for rank {1 - rank}, which cannot be reached" in record.message


def test_both_sides_of_a_cut_cable_go_on_and_meet_again(hosts: list[str]) -> None:
    """By one connection; on rank 0's host the store's name is a loopback address, as on Debian."""
    with Bare(hosts, ("127.0.1.1", "10.77.0.1"), 29411) as job:
        assert job.comes_to(0, answers=[0, 1, 2, 3], silent={})
        # Two ranks may have come to the other host at once: one of them gives way.
        assert wait_for(lambda: job.between_hosts() == 1, 60)
        with cut(hosts):
            assert job.comes_to(0, answers=[0, 1], silent={"2": "unreachable", "3": "unreachable"})
            first = 2 if 3 in job.ask(2)["answers"] else 3
            assert not job.comes_to(first, answers=[2, 3], silent={})
        assert job.comes_to(0, answers=[0, 1, 2, 3], silent={})
        assert wait_for(lambda: job.between_hosts() == 1, 60)  # the old one's packets are retried


def test_hosts_that_have_ipv6_only(hosts: list[str]) -> None:
    """One connection between them, too."""
    with Bare(hosts, ("fd77::1", "fd77::1"), 29412) as job:
        assert job.comes_to(0, answers=[0, 1, 2, 3], silent={})
        assert wait_for(lambda: job.between_hosts() == 1, 60)


def test_a_tuning_on_two_hosts_is_told_by_rank_0s(hosts: list[str], tmp_path: Path) -> None:
    """The same command on each: starts agree by what rank 0's machine asks, the other follows.

    A hook that fails on the other leaves the list here.
    """
    script = str(WORKER.with_name("tune_script.py"))
    tunings = []
    small = ("--width", "24", "--layers", "2", "--no-half-on", "1")
    for rank, name in enumerate(hosts):
        folder = tmp_path / name
        folder.mkdir()
        tune = (
            *(sys.executable, "-m", "hooktrace", "tune", "--hooks", "fp16,allreduce"),
            *("--caps", "0.002", "--steps", "40", "--minutes", "4"),
            *("--out", str(folder), "--json", str(folder / "tuned.json"), "--"),
        )
        tunings.append(
            subprocess.Popen(
                on_host(hosts, rank, 29410, script, str(folder), *small, before=tune),
                env=environment(GLOO_SOCKET_IFNAME="cable"),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
        )  # fmt: skip
    try:
        (first, other) = [one.communicate(timeout=4 * DEADLINE_S)[0] for one in tunings]
    finally:
        for one in tunings:
            one.terminate()  # which ends its job too
        for one in tunings:
            one.wait(60)
    assert [one.returncode for one in tunings] == [0, 0], (first, other)
    assert "the machine of rank 0 says what was found" in other
    told = json.loads((tmp_path / hosts[0] / "tuned.json").read_text())
    assert told["ranks"] == 2
    assert {one["cap"] for one in told["settings"]} == {25.0, 0.002}
    assert {one["hook"] for one in told["settings"]} == {"as-it-is", "allreduce"}
    assert told["refused"].keys() == {"fp16"}
    assert told["refused"]["fp16"].startswith("the job failed in its turn. Start 1 ended with ")
    assert not (tmp_path / hosts[1] / "tuned.json").exists()
