"""``hooktrace run`` is to a script what Python is; what takes torch is in ``tests/distributed``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.distributed.harness import REPOSITORY

SHOW = """
    import json, multiprocessing, pickle, sys

    class Thing:
        pass

    if __name__ == "__main__":
        main = sys.modules["__main__"]
        spec = main.__spec__ and main.__spec__.name
        print(json.dumps({
            "argv": sys.argv, "path": sys.path, "file": __file__, "spec": spec,
            "package": __package__, "thing": type(pickle.loads(pickle.dumps(Thing()))) is Thing,
            "builtins": type(__builtins__).__name__,
            "globals": sorted(n for n in globals() if n != "__annotations__"),
        }))
"""
RUN = ("-m", "hooktrace", "run")


def python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HOOKTRACE_", "RANK"))}
    kept |= {"PYTHONPATH": str(REPOSITORY), "TMPDIR": str(folder)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=kept,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "target", [["bin/script.py"], ["-m", "shown"], ["-m", "shown.part"]], ids=lambda t: t[-1]
)
def test_a_script_sees_what_python_shows_it(target: list[str], tmp_path: Path) -> None:
    """Arguments, import path, file, module of its own classes."""
    for path in ("bin/script.py", "shown/__init__.py", "shown/__main__.py", "shown/part.py"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(textwrap.dedent(SHOW if "init" not in path else ""))
    plain = python(*target, "--lr", "0.1", "-m", folder=tmp_path)
    run = python(*RUN, *target, "--lr", "0.1", "-m", folder=tmp_path)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == json.loads(plain.stdout)


INTERRUPTED = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "signal.raise_signal(signal.SIGINT)"
)
"""Tests that run in the background were told to ignore it, and so was this."""


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        *(("import sys; sys.exit(7)", 7), ("raise SystemExit('bye')", 1), ("1 / 0", 1)),
        *(("1 +", 1), (INTERRUPTED, -signal.SIGINT)),
    ],
)
def test_how_a_script_ends_is_its_own_affair(code: str, exit_code: int, tmp_path: Path) -> None:
    """Exit code, signal and last words; nothing is said of models that it did not come to."""
    (tmp_path / "script.py").write_text(code)
    plain = python("script.py", folder=tmp_path)
    run = python(*RUN, "script.py", folder=tmp_path)
    assert run.returncode == plain.returncode == exit_code
    assert run.stderr.splitlines()[-1:] == plain.stderr.splitlines()[-1:]
    assert "hooktrace: " not in run.stderr


def test_no_model_is_said_once(tmp_path: Path) -> None:
    """Also where the script had children; and nothing heavy is imported for it."""
    heavy = "{'torch', 'typer', 'numpy', 'msgspec', 'hooktrace.tracing.tracer', 'hooktrace.hooks'}"
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'pass'])"
    (tmp_path / "script.py").write_text(f"{child}; print({heavy} & set(sys.modules))")
    run = python(*RUN, "script.py", folder=tmp_path)
    assert run.stdout == "set()\n"
    first, fix = run.stderr.splitlines()
    assert first.startswith("hooktrace: no model under DistributedDataParallel or fully_shard was")
    assert "start them as with torchrun --nproc-per-node 2" in fix
    assert list(tmp_path.iterdir()) == [tmp_path / "script.py"]
    # Under another launcher, a script that fails before its model is no script without one.
    begin = "from hooktrace.integrations import ending, start; start.begin(); ending.watch_first()"
    assert "no model" in python("-c", begin, folder=tmp_path).stderr
    assert "no model" not in python("-c", f"{begin}; 1 / 0", folder=tmp_path).stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--no-such"], "name the script to run, as hooktrace run train.py"),
        (["nowhere.py"], "there is no file nowhere.py; name the script"),
        (["-m", "no_such.module"], "No module named 'no_such'; name the script"),
        (["-m"], "name the script to run"),
    ],
)
def test_what_cannot_be_run(arguments: list[str], problem: str, tmp_path: Path) -> None:
    """One line, exit code 2."""
    run = python(*RUN, *arguments, folder=tmp_path)
    assert run.returncode == 2
    assert run.stderr.startswith(f"hooktrace run: {problem}"), run.stderr
    assert len(run.stderr.splitlines()) == 1
