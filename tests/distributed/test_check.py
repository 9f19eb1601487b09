"""``hooktrace check`` on real ranks: wrong hooks are named, a right one passes, nothing is left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from hooktrace.testing import check_hook
from hooktrace.testing.check import CheckResult
from hooktrace.testing.check.launch import check
from hooktrace.testing.check.spec import HookSpec
from tests.distributed import check_hooks
from tests.distributed.harness import REPOSITORY, environment
from tests.ranks.channel.jobs import wait_for

pytestmark = pytest.mark.slow

HOOKS = "tests.distributed.check_hooks"
DEADLINE_S = 5.0
UNHURRIED_S = 120.0
"""Of a case in which nobody hangs, however busy the machine is."""

IN_TRAINING = {
    "averages": None,
    "aborts": ("crash", 1, "killed by SIGABRT; look at its last words"),
    "raises_on_one_rank": ("hook_exception", 1, "ValueError: boom, in raises_on_one_rank (check"),
    "sums": ("not_averaged", None, "The hook returns the sum of the gradients, not their av"),
    "differs": ("replicas_diverge", None, "the ranks have different results"),
}
"""Kind, rank and a part of the message of the only failure under delays."""

ODD = {
    ("zeros", "nan"): {
        "divides_by_norm": [("zeros", "fail", "nonfinite_result")],
        "hides_nan": [("nan", "warn", "nan_hidden")],
        "remembers": [("zeros", "fail", "wrong_gradients"), ("nan", "warn", "nan_stays_in_state")],
    },
    ("float16", "pickling"): {
        "annotated": [],
        "made_in_place": [("pickling", "warn", "not_picklable")],
        "float32_only": [("float16", "warn", "not_supported")],
    },
}
"""What odd values show, and odd forms: case, status and kind."""


def checked(names: Iterable[str], *cases: str) -> dict[str, CheckResult]:
    made = {"remembers": f"{HOOKS}:Memory"}
    specs = {name: HookSpec.of(f"{HOOKS}:{name}", made.get(name)) for name in names}
    return {name: check(spec, cases=cases, timeout_s=UNHURRIED_S) for name, spec in specs.items()}


def found(result: CheckResult) -> list[tuple[str, str, str]]:
    return [(f.case, f.status, f.kind) for f in result.problems]


def test_what_goes_wrong_in_training_is_named() -> None:
    """The first cause and nothing else, on its rank; no rank waits for one that is gone."""
    for name, result in checked(IN_TRAINING, "many-buckets").items():
        assert result.cases[0].seconds < UNHURRIED_S
        expected = IN_TRAINING[name]
        if expected is None:
            assert not result.problems
            note = "relative error of a step 0, of their sum 0; compression 1"
            assert result.cases[0].note == note
            continue
        kind, rank, message = expected
        (problem,) = result.problems
        assert (problem.status, problem.kind, problem.rank) == ("fail", kind, rank)
        assert message in problem.message


def test_a_hang_costs_its_deadline_and_leaves_its_stacks() -> None:
    """Of all threads of all ranks; and ends the check."""
    spec = HookSpec(name="stands_still", hook=f"{HOOKS}:stands_still")
    result = check(spec, cases=["many-buckets", "large"], timeout_s=DEADLINE_S)
    (hung,) = result.cases
    assert hung.note == "the cases after this one were not run"
    assert hung.seconds >= DEADLINE_S
    (problem,) = hung.problems
    assert (problem.status, problem.kind, problem.rank) == ("fail", "hang", None)
    assert problem.message.startswith("not done after 5 s on ranks 0, 1; look at the stacks")
    stacks = hung.stacks
    assert stacks.count("_engine_run_backward") == 2
    assert "rank 0:" in stacks
    assert "stands_still" in stacks


def test_odd_values_and_forms_are_told() -> None:
    """NaN out of zeros, hidden, or kept in the state; what DDP refuses, or pickle, or float16."""
    for cases, expected in ODD.items():
        results = checked(expected, *cases)
        assert {name: found(result) for name, result in results.items()} == expected
        if "divides_by_norm" in results:
            (problem,) = results["divides_by_norm"].problems
            assert problem.message == (
                "gradients of zeros gave NaN or inf in 18816 of 18816 elements (step 0, each rank "
                "its own); look for a division by a norm or a range"
            )


def test_check_hook_returns_or_raises() -> None:
    """A result where nothing fails, and else an assertion with the table."""
    cases = ["huge", "large"]
    result = check_hook(check_hooks.averages, cases=cases)
    found = {case.case: case.status for case in result.cases}
    assert found == dict.fromkeys(cases, "pass")
    with pytest.raises(AssertionError, match="not_averaged: The hook returns the sum of the"):
        check_hook(check_hooks.sums, cases=["odd-sizes"])


def run(hook: str, directory: Path) -> subprocess.Popen[str]:
    """Start the command, with its temporary files in a directory that names its processes."""
    command = [sys.executable, "-m", "hooktrace", "check", f"{HOOKS}:{hook}"]
    return subprocess.Popen(
        [*command, "--case", "many-buckets"], env=environment(TMPDIR=directory), cwd=REPOSITORY,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def left_in(directory: Path) -> list[Path]:
    """Return the check's temporary files; torch's own caches stay."""
    return list(directory.glob("hooktrace-check-*"))


def processes_of(directory: Path) -> list[str]:
    """Return the command lines that name a directory: of the host and its ranks."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(directory) in line:
            lines.append(line)
    return lines


def test_the_exit_code_says_it(tmp_path: Path) -> None:
    """1 for a wrong one; and no process or file is left."""
    process = run("sums", tmp_path)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 1, output
    assert "sums on 2 gloo ranks: fail (1 fail)" in output
    assert (processes_of(tmp_path), left_in(tmp_path)) == ([], [])


def test_a_killed_check_takes_its_ranks_with_it(tmp_path: Path) -> None:
    """And its files."""
    process = run("never_done", tmp_path)
    assert wait_for(lambda: len(processes_of(tmp_path)) >= 3, 120)  # the host and two ranks
    process.kill()
    process.communicate(timeout=120)
    assert wait_for(lambda: not (processes_of(tmp_path) or left_in(tmp_path)), 120)
