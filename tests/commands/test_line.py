"""The command line knows ``run``, which it never runs itself; all else is in ``test_main``."""

from __future__ import annotations

from typer.testing import CliRunner

from hooktrace.commands.line.root import main


def test_run_is_shown_and_left_to_the_process() -> None:
    """A library that catches exceptions and interrupts must not stand around a script."""
    assert " run " in CliRunner().invoke(main, ["--help"]).stdout
    result = CliRunner().invoke(main, ["run", "train.py"])
    assert result.exit_code == 2
    assert "start it as the process's own command" in result.stderr
