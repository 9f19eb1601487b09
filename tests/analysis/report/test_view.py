"""The report as it is printed, and on its page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.report.jobs import report_of, write_changed
from tests.analysis.report.sharded_jobs import ShardedJob, units, write_sharded
from tests.analysis.report.test_command import call
from tests.analysis.run.files import timed_by_device
from tests.analysis.shown import page_of


def test_a_unit_s_numbers_are_whole_on_a_short_line(tmp_path: Path) -> None:
    """Of a hook there are more columns than fit: names give way, and no number does."""
    job = ShardedJob(codec_ms=1.5, error=0.01, units=units(4, "model.transformer.encoder.layers"))
    write_sharded(replace(job, late_ms={1: 20.0}), tmp_path)
    lines = call("report", tmp_path).output.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("Units:"))
    header, *rows = lines[first + 1 : first + 2 + len(job.slots())]
    names = "unit collective payload sent comp decomp wait exposed busbw error"
    assert header.split() == names.split()
    for row in rows:
        assert "\u2026" not in row[row.index("gather " if "gather " in row else "reduce") :], row
    assert not any("waits for:" in line for line in lines)  # which is a column of the page


def test_what_sends_more_than_it_gets_says_so(tmp_path: Path) -> None:
    """Of a unit of one number 8 bits with their scale are more than 32."""
    write_sharded(ShardedJob(codec_ms=1.5, sends=1.5), tmp_path)
    printed = " ".join(call("report", tmp_path).output.split())
    sent = 9 * 4 + 5 * 18
    assert "36.00 MB of parameters that a rank gives to gathers, a step; 60.00 MB" in printed
    assert f"{sent}.00 MB sent a step, of 96.00 MB" in printed
    assert "collective payload sent" in printed


def test_one_rank_has_no_bus_bandwidth_and_waits_for_nobody(tmp_path: Path) -> None:
    write_job(SyntheticJob(ranks=1, steps=10), tmp_path)
    printed = " ".join(call("report", tmp_path).output.split())
    assert "wait: none, as one rank waits for nobody" in printed
    assert "steps on 1 rank; 95 % of them" in printed
    assert "at least" not in printed
    assert "nobody knows" not in printed


def test_on_a_device_a_lag_is_of_the_host_s_calls(tmp_path: Path) -> None:
    """And the page says so as well."""
    job = SyntheticJob(ranks=2, steps=10)
    write_changed(tmp_path, job, lambda _, step: timed_by_device(step))
    page = tmp_path / "page.html"
    printed = " ".join(call("report", tmp_path, "--html", page).output.split())
    assert "lag: of the last bucket, by the host's calls, after the first rank" in printed
    assert (
        "at which a rank&#39;s host calls a bucket&#39;s hook; across: bucket" in page.read_text()
    )


def test_what_is_said_in_place_of_a_picture_is_true(tmp_path: Path) -> None:
    """Why nobody can be called late."""
    write_job(SyntheticJob(ranks=1, steps=10), tmp_path)
    text = page_of(report_of(tmp_path))
    assert "One rank alone has a file" in text
    assert "clocks are not known" not in text
