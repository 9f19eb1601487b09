"""The command line: what it accepts, and how it says no."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hooktrace.__main__ import main
from hooktrace.hooks import catalogue
from hooktrace.hooks.sharded import SHARDED_HOOKS
from hooktrace.testing.synthetic import SyntheticJob, write_job


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize(
    ("line", "problem", "fix"),
    [
        ("demo --hook zip", "there is no hook 'zip'; pass --hook one of allreduce, ", "rank4"),
        ("demo --fsdp --hook bf16", "a sharded model has no hook 'bf16'; pass --hook", "scatter"),
        ("demo --fsdp --ranks 1", "over one rank nothing is sharded", "with --ranks 2 or more"),
        ("demo --port 65535", "there is none for each of 2 ranks", "or --port 0 for free ones"),
        ("demo --bucket-cap-mb 0", "a bucket cannot hold 0 MB", "pass --bucket-cap-mb above 0"),
        ("demo --bucket-cap-mb inf", "cannot hold inf MB", "pass --bucket-cap-mb above 0"),
        ("check package.module.hook", "", "such as my_package.hooks:my_hook"),
        ("check package.module:hook --state state", "", "such as my_package.hooks:my_hook"),
        ("check package.module:hook --ranks 0", "", "2 to see what is averaged"),
    ],
)
def test_a_bad_option_is_named_with_what_to_pass(
    line: str, problem: str, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line on standard error, exit code 2, and nothing is started or written."""
    monkeypatch.chdir(tmp_path)
    result = call(*line.split())
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert problem in result.stderr
    assert result.stderr.rstrip().endswith(fix)
    assert not [*tmp_path.iterdir()]


def test_demo_says_what_it_cannot_write(tmp_path: Path) -> None:
    """Below a file nothing can be written."""
    (tmp_path / "file").touch()
    written = call("demo", "--port", "0", "--out", str(tmp_path / "file" / "run"))
    assert written.exit_code == 2
    assert "Not a directory; pass --out a directory that you may write" in written.stderr


def test_demo_says_which_file_it_cannot_write_once_it_starts(tmp_path: Path) -> None:
    """As in a folder with the logs of an earlier run, where nothing may be written any more."""
    (tmp_path / "logs" / "launcher.log").mkdir(parents=True)
    written = call("demo", "--port", "0", "--out", str(tmp_path))
    assert written.exit_code == 1
    assert written.stderr.startswith("hooktrace demo: the ranks could not be run: [Errno 21]")
    assert "launcher.log'; if it names a file, pass another --out" in written.stderr


def test_hooks_lists_the_catalogue_at_80_columns() -> None:
    """A line for each hook, by the name that the demo takes, and what it does: nothing is cut."""
    result = call("hooks")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert max(map(len, lines)) <= 80
    names = [entry.name for entry in catalogue()]
    first_words = [words[0] for line in lines if (words := line.split())]
    assert [word for word in first_words if word in names] == names
    stripped = [line.strip() for line in lines]
    assert {entry.what for entry in catalogue()} <= set(stripped)
    for hook in SHARDED_HOOKS:
        at = stripped.index(f"{hook.call:<44}{hook.takes_place_of.replace('_', '-')}")
        assert stripped[at + 1 : at + 3] == [hook.what, f"sends {hook.sends}"]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], ["hooks"], ["report", "--json"]])
def test_what_answers_at_once_imports_no_torch(arguments: list[str], tmp_path: Path) -> None:
    """Importing torch takes seconds, which help, a list and a report of files do without."""
    if "report" in arguments:
        write_job(SyntheticJob(ranks=2, steps=5), tmp_path)
        arguments = [*arguments, str(tmp_path)]
    code = (
        "import sys\nfrom hooktrace.__main__ import main\n"
        f"main({arguments!r}, standalone_mode=False)\n"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True, stdout=subprocess.DEVNULL)
