"""The report as it is printed."""

from __future__ import annotations

from pathlib import Path

from hooktrace.testing.synthetic import write_job
from tests.analysis.report.test_command import JOB, Page, call


def test_a_report_in_the_terminal_and_as_a_page(tmp_path: Path) -> None:
    """The same findings in both, in the same order."""
    write_job(JOB, tmp_path)
    out = tmp_path / "report.html"
    result = call("report", tmp_path, "--html", out)
    assert result.exit_code == 0, result.output
    printed = " ".join(result.output.split())
    page = Page(out.read_text())
    for words in (
        "A gradient came in with NaN or inf: first seen at step 3, bucket 1, rank 2.",
        "Exposed communication is",
        "Rank 1 (host-0) is late",
    ):
        assert words in printed
        assert words in " ".join(page.text.split())
    assert "What is missing" not in printed
    assert printed.endswith(f"with pictures: {out}")
