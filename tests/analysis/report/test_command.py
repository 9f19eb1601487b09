"""The two subcommands: what they print and write, and how they say no."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner, Result

from hooktrace.__main__ import main
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.run.files import run_of, steps_of, text_of, write_ranks

JOB = SyntheticJob(ranks=3, steps=30, late_ms={1: 5.0}, error=0.02, anomaly_rank=2)
RANK_0 = "plugins/hooktrace/rank00000.jsonl"


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def test_one_model_only(tmp_path: Path) -> None:
    steps = steps_of(3)
    other = [
        (replace(s, model="other"), tuple(replace(b, model="other") for b in bs)) for s, bs in steps
    ]
    write_ranks(tmp_path, {0: text_of(run_of(0), [*steps, *other])})
    both, one = call("report", tmp_path), call("report", tmp_path, "--model", "other")
    assert {"net", "other"} <= set(both.output.splitlines())
    assert {"net", "other"} & set(one.output.splitlines()) == {"other"}
    none = call("report", tmp_path, "--model", "third")
    assert none.exit_code == 2
    assert none.stderr.strip().endswith(
        "no model is called 'third'; pass --model one of net, other"
    )


@pytest.mark.parametrize(
    "command", [["report", "--html"], ["export", "--out"], ["report", "--json"]]
)
@pytest.mark.parametrize(
    ("file", "problem", "fix"),
    [
        (None, "there is no record file in", "set HOOKTRACE_RECORD_DIR in the job"),
        ((RANK_0, "rubbish\n"), "no record file of hooktrace: no line of it is a record", ""),
        ((RANK_0, text_of(run_of(0), [])), "hold no step", "end with tracer.close()"),
    ],
    ids=["no file", "rubbish", "no step"],
)  # fmt: skip
def test_what_cannot_be_read_is_named(
    tmp_path: Path, command: list[str], file: tuple[str, str] | None, problem: str, fix: str
) -> None:
    """One line on standard error, exit code 2, and nothing is printed or written."""
    if file is not None:
        path, content = tmp_path / file[0], file[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    name, option = command
    out = tmp_path / "out"
    result = call(name, tmp_path, option, *([] if option == "--json" else [out]))
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert problem in result.stderr
    assert result.stderr.rstrip().endswith(fix)
    assert not out.exists()


@pytest.mark.parametrize("command", ["report", "export"])
def test_where_it_cannot_write_it_says_so_first(tmp_path: Path, command: str) -> None:
    """Before anything is read; and a logdir that does not exist is named."""
    option = "--html" if command == "report" else "--out"
    out = tmp_path / "nowhere" / "out"
    result = call(command, tmp_path, option, out)
    assert result.exit_code == 2
    assert f"cannot write {out}: No such file or directory; pass a file in" in result.stderr
    result = call(command, tmp_path / "nothing", option, tmp_path / "out")
    assert result.exit_code == 2
    assert f"there is no {tmp_path / 'nothing'}; pass the logdir" in result.stderr


def test_part_of_the_data_is_reported_on(tmp_path: Path) -> None:
    """A file cut off in the middle of a line, and one rank without."""
    write_job(JOB, tmp_path)
    first = tmp_path / RANK_0
    text = first.read_text()
    first.write_text(text[: text.rindex('"exposed_ns"')])
    first.with_name("rank00002.jsonl").unlink()
    result = call("report", tmp_path)
    assert result.exit_code == 0
    assert "the file ends in the middle of it" in " ".join(result.output.split())
    exported = call("export", tmp_path, "--out", tmp_path / "m.json")
    assert (exported.exit_code, "2 ranks" in exported.output) == (0, True)
