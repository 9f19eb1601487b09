"""The harness itself: a bad scenario fails alone, is named, and no process outlives it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import leaks
from tests.distributed import harness_scenarios
from tests.distributed.harness import REPOSITORY, Ranks, Scenario, ScenarioError, environment

from ..exporters.processes import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def own() -> Iterator[Ranks]:
    """Two ranks that nobody else's tests depend on."""
    ranks = Ranks(2)
    yield ranks
    ranks.close()


BAD: dict[Scenario, str] = {
    harness_scenarios.raises_on_one: r"rank 1 failed in .*raises_on_one: (.|\n)*ValueError: boom",
    harness_scenarios.hangs: r"hangs was not done after 6 s on ranks \[0\]\n(.|\n)*in hangs",
    harness_scenarios.exits: r"rank 1 failed in .*exits: its process ended\n(.|\n)*on its way out",
    harness_scenarios.leaves_a_tracer: r"rank 0 failed in .*leaves_a_tracer: .*1 tracer\(s\) left",
}


@pytest.mark.parametrize("scenario", BAD)
def test_a_bad_scenario_fails_alone(own: Ranks, scenario: Scenario) -> None:
    """Named, with what was printed or where it stands; what comes next runs in a fresh group."""
    before = [pid for pid, *_ in own.run(harness_scenarios.fine)]
    for _ in range(2):  # the second test that asks for it is told the same
        with pytest.raises(ScenarioError, match=BAD[scenario]):
            own.run(scenario)
    assert not any(map(alive, before))
    first, second = own.run(harness_scenarios.environment_left)
    assert (first, second) == (False, False)
    assert own.run(harness_scenarios.fine)[0][0] == before[0]  # kept from the first time
    own.forget()


def test_scenarios_share_processes_and_start_alike(own: Ranks) -> None:
    """The same ranks run all, with the same random numbers; those apart have their own."""
    first = own.run(harness_scenarios.fine)
    own.forget()
    assert own.run(harness_scenarios.fine) == first
    assert {world for _, world, _ in first} == {2}
    assert own.run(harness_scenarios.environment_left) == [False, False]
    apart = own.run(harness_scenarios.alone)
    assert {pid for pid, *_ in first} & set(apart) == set()
    assert not any(map(alive, apart))


def test_results_are_copies_but_for_those_who_only_read(own: Ranks) -> None:
    """Until the scenario runs again."""
    assert own.run(harness_scenarios.fine)[0] is not own.run(harness_scenarios.fine)[0]
    read = own.read(harness_scenarios.fine)
    assert read == own.run(harness_scenarios.fine)
    assert own.read(harness_scenarios.fine) is read
    own.forget()
    assert own.read(harness_scenarios.fine) is not read


def test_ranks_end_with_the_process_that_wants_them(tmp_path: Path) -> None:
    """However it ends."""
    code = (
        "from tests.distributed import harness, harness_scenarios\n"
        "ranks = harness.Ranks(1)\n"
        "from multiprocessing.forkserver import _forkserver\n"
        "rank = ranks.run(harness_scenarios.fine)[0][0]\n"
        "print(rank, _forkserver._forkserver_pid, flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=REPOSITORY, env=environment(TMPDIR=str(tmp_path)),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        pids = [int(found) for found in re.findall(r"\d+", process.stdout.readline())]
        assert len(pids) == 2
        process.send_signal(signal.SIGKILL)
    until(lambda: [pid for pid in pids if alive(pid)], lambda left: not left, tmp_path / "log")


def alive(pid: int) -> bool:
    """Return whether a process runs, whoever started it."""
    return bool(leaks.command(pid))  # a zombie has none
