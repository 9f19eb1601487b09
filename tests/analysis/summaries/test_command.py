"""``hooktrace report RUN --on``: what a user sees, and what cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.__main__ import main
from hooktrace.analysis.summaries.command import _job
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.timeline.files import run_of, steps_of, text_of, write_ranks

pytestmark = pytest.mark.slow


def run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["report", *arguments])
    assert ended.value.code in (0, None)


def test_text_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("datasketches")
    write_job(SyntheticJob(ranks=3, steps=30, late_ms={1: 12.0}), tmp_path)
    run(str(tmp_path), "--on", "local:1")
    said = capsys.readouterr().out
    assert "Rank 1 (host-0) is late" in said
    assert "read by 1 processes, of " in said
    run(str(tmp_path), "--on", "local:1", "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["ranks"], found["models"][0]["facts"]["late"][0]["rank"]) == (3, 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--on", "spark"], "nothing is called 'spark' to run on"),
        (["--on", "local", "--html", "r.html"], "summaries have no pictures; leave out --html"),
        (["--on", "local:1", "--model", "net"], "no model is called 'net'; pass --model one of s"),
    ],
)
def test_what_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    if "--model" in arguments:
        pytest.importorskip("datasketches")
    write_job(SyntheticJob(ranks=1, steps=5), tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["report", str(tmp_path), *arguments])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_url_is_not_for_workers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["report", "s3://bucket/run", "--on", "local"])
    assert "and s3://bucket/run is a URL; mount it, or leave out --on" in capsys.readouterr().err


def test_the_newest_run_is_meant(tmp_path: Path) -> None:
    """Also where the lowest rank's file is of another, whose clock tells nothing of it."""
    texts = {0: text_of(run_of(0, run_id="older"), steps_of(1))}
    for rank in (1, 2):
        run = run_of(rank)
        texts[rank] = text_of(replace(run, wall_anchor_ns=run.wall_anchor_ns + 1), steps_of(1))
    write_ranks(tmp_path, texts)
    job = _job(find_records(tmp_path))
    assert job.run is not None
    assert (job.run.run_id, job.run.rank, job.reference) == (run_of(1).run_id, 1, None)
