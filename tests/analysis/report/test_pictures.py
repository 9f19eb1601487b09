"""The pictures of a page."""

from __future__ import annotations

import re
from pathlib import Path

from hooktrace.testing.synthetic import write_job
from tests.analysis.report.test_command import JOB, Page, call


def test_the_page_needs_nothing_else_and_has_its_pictures(tmp_path: Path) -> None:
    """No script, nothing that is fetched; all pictures are there, without a NaN.

    What it says is what the terminal says.
    """
    write_job(JOB, tmp_path)
    out = tmp_path / "report.html"
    result = call("report", tmp_path, "--html", out)
    assert result.exit_code == 0, result.output
    text = out.read_text()
    page = Page(text)
    printed = " ".join(result.output.split())
    for words in (
        "A gradient came in with NaN or inf: first seen at step 3, bucket 1, rank 2.",
        "Exposed communication is",
        "Rank 1 (host-0) is late",
    ):
        assert words in printed
        assert words in " ".join(page.text.split())
    assert "What is missing" not in printed
    assert printed.endswith(f"with pictures: {out}")
    labels = [value for name, value in page.attributes if name == "aria-label"]
    assert labels[2:] == [
        "overlap and exposed time by step",
        "stages of each bucket",
        "lag of each rank at each bucket",
    ]
    assert [bool(re.fullmatch(r"step \d+ on all ranks", str(label))) for label in labels[:2]] == [
        True, True,
    ]  # fmt: skip
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert not {"src", "href", "onload", "onclick"} & {name for name, _ in page.attributes}
    assert not re.search(r"url\(|@import|https?:", text)
    assert not re.search(r'"[^"]*\b(nan|inf)\b[^"]*"', " ".join(re.findall(r"<svg.*?</svg>", text)))
