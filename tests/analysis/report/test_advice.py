"""The report's last section: of a calibrated run the advice, of any other nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hooktrace.analysis.report.advice import advice_of
from hooktrace.analysis.whatif.answer import LIMITS
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.whatif.calibrated_run import MODEL, written
from tests.analysis.whatif.truth import Truth

from .test_command import Page, call


def test_a_calibrated_runs_report_ends_with_the_advice(tmp_path: Path) -> None:
    """In the terminal, on the page and as JSON; called predicted, with what it loses."""
    written(Truth(steps=40), tmp_path / "run")
    html = tmp_path / "report.html"
    shown = call("report", tmp_path / "run", "--html", html)
    assert shown.exit_code == 0, shown.output
    said = " ".join(shown.output.split())
    last = said[said.index(f"Advice for {MODEL}, predicted") :]
    assert "powersgd in place of allreduce" in last
    assert "lossy (low-rank)" in last
    assert LIMITS in last
    assert "docs/what-if.md" in last
    text = Page(html.read_text("utf-8")).text
    assert text.index(f"Advice for {MODEL}") > text.index("Ranks")
    (model,) = msgspec.json.decode(call("report", tmp_path / "run", "--json").output)["models"]
    assert model["advice"][0]["hook"] == "powersgd"
    assert model["advice"][0]["gain_low_ms"] > 0


def test_without_a_calibration_there_is_none(tmp_path: Path) -> None:
    """Nor a word of it; in the JSON it is null."""
    write_job(SyntheticJob(ranks=2, steps=20), tmp_path / "run")
    shown = call("report", tmp_path / "run", "--html", tmp_path / "report.html")
    assert "Advice" not in shown.output
    assert "Advice" not in (tmp_path / "report.html").read_text("utf-8")
    (model,) = msgspec.json.decode(call("report", tmp_path / "run", "--json").output)["models"]
    assert model["advice"] is None


def test_it_takes_the_times_of_gradients(tmp_path: Path) -> None:
    """Trials alone are no calibration."""
    timeline = written(Truth(steps=40), tmp_path)
    assert advice_of(timeline, MODEL) is not None
    for track in timeline.tracks:
        track.records.computes.clear()
    assert advice_of(timeline, MODEL) is None
