"""Links of the page to steps in Comm Timeline."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from hooktrace.__main__ import main
from hooktrace.analysis.report.finding import Finding
from hooktrace.analysis.report.links import MOST_LINKS, checked_address, step_links
from hooktrace.analysis.report.run_report import build_report
from hooktrace.analysis.timeline import load
from hooktrace.records.errors import UsageError
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob, write_job

AT = "http://localhost:6006"


def test_a_finding_links_to_its_steps(tmp_path: Path) -> None:
    """By folder, run and model; without a TensorBoard, a folder or steps there are no links."""
    job = SyntheticJob(steps=12)
    folder = tmp_path / "a run&1"
    write_job(job, folder)
    report = build_report(load(find_records(folder)), path=str(folder))
    finding = Finding(sentence="", steps=tuple(range(3, 20)))
    links = step_links(report, job.model, finding, AT)
    assert [step for step, _ in links] == [3, 4, 5, 6, 7, 8][:MOST_LINKS]
    run = str(folder).replace("/", "%2F").replace(" ", "%20").replace("&", "%26")
    assert links[0][1] == (
        f"{AT}/#hooktrace&p.hooktrace.run={run}&p.hooktrace.id=synthetic"
        "&p.hooktrace.model=synthetic&p.hooktrace.step=3"
    )
    assert step_links(report, job.model, finding, None) == []
    assert step_links(report, job.model, Finding(sentence=""), AT) == []
    inner = replace(report.source, path=str(folder / "plugins/hooktrace"))
    assert step_links(dataclasses.replace(report, source=inner), job.model, finding, AT) == links
    cloud = dataclasses.replace(report, source=replace(inner, path="s3://bucket/run"))
    assert "run=s3%3A%2F%2Fbucket%2Frun&" in step_links(cloud, job.model, finding, AT)[0][1]


@pytest.mark.parametrize(
    ("given", "address"),
    [
        (f"{AT}/", AT),
        (f"{AT}/#hooktrace&p.hooktrace.run=b", AT),
        ("https://h/prefix/", "https://h/prefix"),
    ],
)
def test_an_address_is_taken_as_it_is_copied(given: str, address: str) -> None:
    """With its tab, or a path prefix."""
    assert checked_address(given) == address


@pytest.mark.parametrize("bad", ["localhost:6006", "javascript:alert(1)", "", "http://"])
def test_what_is_no_address_is_refused(bad: str) -> None:
    """With an example of one that is."""
    with pytest.raises(UsageError, match="http://localhost:6006"):
        checked_address(bad)


def test_the_page_has_the_links(tmp_path: Path) -> None:
    """Of the slow steps and the anomaly; none where no TensorBoard is named."""
    job = SyntheticJob(steps=60, slow_every=23, bytes_per_second=2e8, anomaly_rank=1)
    write_job(job, tmp_path)
    out = tmp_path / "report.html"
    told = CliRunner().invoke(main, ["report", str(tmp_path), "--html", str(out)])
    assert told.exit_code == 0, told.output
    assert "hooktrace.step" not in out.read_text()
    CliRunner().invoke(main, ["report", str(tmp_path), "--html", str(out), "--tensorboard", AT])
    page = out.read_text()
    assert f'<a href="{AT}/#hooktrace&amp;p.hooktrace.run=' in page
    assert 'p.hooktrace.step=3">step 3</a>' in page
    told = CliRunner().invoke(main, ["report", str(tmp_path), "--tensorboard", AT])
    assert told.exit_code != 0
    assert "pass --html FILE too" in told.output
