"""The command line knows ``run``, which it never runs itself; all else is in ``test_main``."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

import hooktrace
from hooktrace.commands.line import main

COMMANDS = list(typer.main.get_command(main).commands)  # type: ignore[attr-defined]


def test_run_is_shown_and_left_to_the_process() -> None:
    """A library that catches exceptions and interrupts must not stand around a script."""
    assert " run " in CliRunner().invoke(main, ["--help"]).stdout
    result = CliRunner().invoke(main, ["run", "train.py"])
    assert result.exit_code == 2
    assert "start it as the process's own command" in result.stderr


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_flags_take_no_value(command: list[str]) -> None:
    """Nobody is to write ``--json true``; other options say what they take."""
    shown = CliRunner().invoke(main, [*command, "--help"]).stdout
    assert "--help" in shown
    assert "bool" not in shown.lower()
    if command == ["export"]:
        assert "--out" in shown
        assert "path" in shown.lower()


def test_the_version() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"hooktrace {hooktrace.__version__}\n")


@pytest.mark.parametrize("command", [["bench"], ["tune"]])
def test_what_takes_minutes_asks_first_where_its_numbers_go(command: list[str]) -> None:
    job = ["--", "torchrun", "train.py"] if command == ["tune"] else []
    result = CliRunner().invoke(main, [*command, "--json", "/nowhere/at.json", *job])
    assert result.exit_code == 2
    assert "cannot write /nowhere/at.json" in result.stderr
