"""The report as a whole: JSON, page and terminal; what it says of each job is in ``golden/``."""

from __future__ import annotations

import json
import re
from dataclasses import replace as like
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hooktrace.analysis.report import build_report
from hooktrace.analysis.report.findings import HUNG, RULES, UNIT_RULES
from hooktrace.analysis.report.pictures import step_pictures
from hooktrace.analysis.report.tables import bucket_table, rank_table
from hooktrace.records.files import record_path
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.golden import HERE
from tests.analysis.report.jobs import facts_of, report_of
from tests.analysis.report.sharded_jobs import ShardedJob, write_sharded
from tests.analysis.report.test_command import JOB, call
from tests.analysis.runs import arrays_of, job_run, run_in
from tests.analysis.shown import Page, named, page_of


def json_of(folder: Path, *options: object) -> dict[str, Any]:
    """Return what the command prints, which is JSON and nothing else."""
    result = call("report", folder, "--json", *options)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout, parse_constant=pytest.fail)
    return found


def test_a_job_can_assert_on_findings(tmp_path: Path) -> None:
    """By rule, rank and gain, and on facts by bucket and rank, with what nobody knows as null.

    A page that is asked for is written beside it.
    """
    write_job(like(JOB, error=None), tmp_path)
    out = tmp_path / "report.html"
    report = json_of(tmp_path, "--html", out)
    assert out.read_text().startswith("<!doctype html>")
    (model,) = report["models"]
    by_rule = {one["rule"]: one for one in model["findings"]}
    late, wrong = by_rule["ranks_wait"], by_rule["nonfinite_gradient"]
    assert (late["rank"], late["bucket"], late["is_wrong"]) == (1, 0, False)
    assert (wrong["rank"], wrong["bucket"], wrong["is_wrong"]) == (2, 1, True)
    assert (4e6 < late["gain_ns"] < 6e6, wrong["gain_ns"], report["schema"]) == (True, None, 5)
    assert (report["ranks"], report["run"]["world_size"], report["missing"]) == (3, 3, [])
    facts = model["facts"]
    assert by_rule["communication_is_exposed"]["gain_ns"] == facts["exposed"]["p50"]
    assert (facts["model"], facts["steps"], len(facts["buckets"])) == ("synthetic", 30, 8)
    assert facts["buckets"][0]["stages"].keys() == {"compress", "wire", "decompress"}
    assert facts["buckets"][0]["error"] is None
    assert [rank["rank"] for rank in facts["ranks"]] == [0, 1, 2]
    assert facts["exposed_share"] == facts["exposed"]["p50"] / facts["period"]["p50"]
    assert report["source"] == {
        "path": str(tmp_path), "begun": "2026-11-18 11:06:40+00:00", "hosts": ["host-0"],
    }  # fmt: skip


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """By the report and by ``hooktrace hang``; the report is of the others."""
    write_job(SyntheticJob(ranks=3, steps=10), tmp_path)
    path = record_path(tmp_path, 1)
    path.unlink()
    path.symlink_to("/dev/zero")
    for command in ("report", "hang"):
        result = call(command, tmp_path)
        assert result.exit_code == 0, result.output
        text = " ".join(result.output.split())
        assert "rank00001.jsonl" in text
        assert "it is not a regular file; put a file there that you may read" in text
        assert "no record file" not in text
        assert "no file" not in text


def test_the_page_needs_nothing_else_and_has_its_pictures(tmp_path: Path) -> None:
    """No script, nothing that is fetched; all pictures are there, without a NaN.

    What it says is what the terminal says.
    """
    write_job(JOB, tmp_path)
    out = tmp_path / "report.html"
    result = call("report", tmp_path, "--html", out)
    assert result.exit_code == 0, result.output
    text, printed = out.read_text(), " ".join(result.output.split())
    page = Page(text)
    for model in build_report(run_in(tmp_path)).models:
        for one in model.findings:
            assert one.sentence in " ".join(page.text.split())
            assert one.sentence in printed
    assert "What is missing" not in printed
    assert printed.endswith(f"with pictures: {out}")
    labels = [re.sub(r"\d+", "3", str(value)) for name, value in page.attributes
              if name == "aria-label"]  # fmt: skip
    assert labels == ["step 3 on all ranks"] * 2
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert not {"src", "href", "onload", "onclick"} & {name for name, _ in page.attributes}
    assert not re.search(r"url\(|@import|https?:", text)
    assert not re.search(r'"[^"]*\b(nan|inf)\b[^"]*"', " ".join(re.findall(r"<svg.*?</svg>", text)))


def test_one_step_is_drawn_once(tmp_path: Path) -> None:
    """Without a next one nobody knows how long it took."""
    ((title, _),) = step_pictures(arrays_of(job_run(SyntheticJob(ranks=2, steps=1), tmp_path)))
    assert title.startswith("Step: ")


@pytest.mark.slow
def test_of_many_ranks_the_late_one_is_shown_and_others_are_folded(tmp_path: Path) -> None:
    job = SyntheticJob(
        ranks=70, steps=5, late_ms={37: 9.0}, bucket_bytes=(400_000,) * 110, jitter_ms=0.0
    )
    write_job(job, tmp_path)
    report = report_of(tmp_path)
    (model,) = report.models
    for table, known, shown, count in (
        (rank_table(model.facts), "37", 32, 70),
        (bucket_table(model.facts), "109", 64, 110),
    ):
        assert known in {row[0] for row in table.rows}
        assert len(table.rows) == shown
        assert len(table.rows) + len(table.folded) == count
    text = page_of(report)
    assert "<summary>38 more ranks</summary>" in text
    assert "64 of 70 ranks" in text
    assert len(text) < 4_000_000


def test_a_call_that_is_made_again_has_its_number(tmp_path: Path) -> None:
    write_sharded(ShardedJob(steps=5), tmp_path)
    facts = facts_of(tmp_path)
    bucket = facts.buckets[1]
    assert bucket.unit is not None
    long = replace(bucket.unit, name="model.language_model.transformer.layers.11.mlp", repeat=2)
    (row,) = named(bucket_table(replace(facts, buckets=(replace(bucket, unit=long),))))
    assert (row["unit"], row["collective"]) == (long.name, "all-gather (forward) #3")


GOLDEN = {path.stem: path.read_text("utf-8") for path in HERE.iterdir()}
OF_UNITS = [name for name in GOLDEN if name.startswith(("units-", "replicas-", "sharded"))]


@pytest.mark.parametrize("name", OF_UNITS)
def test_of_units_nothing_speaks_of_buckets(name: str) -> None:
    """Nor of a backward pass that hides, or of the last gradient: in report, hang and page."""
    text = GOLDEN[name].partition("# tab")[0]
    before, _, page = text.partition("# page")
    text = before.partition("# bucket")[0] + page.partition("# trace")[0]
    text = re.sub(r"units take the place of buckets|buckets rebuilt", "", text)
    text = "\n".join(line for line in text.splitlines() if not line.startswith("{"))
    for words in ("bucket", "backward pass", "last gradient", "with the backward"):
        assert words not in text


def test_each_rule_speaks_in_a_golden_file() -> None:
    """DDP's own rules are none of a sharded model's."""
    said: dict[bool, set[str]] = {True: set(), False: set()}
    for name, text in GOLDEN.items():
        said[name in OF_UNITS] |= set(re.findall(r'^\{.*"rule": "(\w+)"', text, re.MULTILINE))
    of_buckets, of_units = ({rule.__name__ for rule in rules} for rules in (RULES, UNIT_RULES))
    # Of two rules the files of the jobs of their names have the sentence alone.
    in_words = {"small_buckets", "saves_less_than_it_costs"}
    assert said[False] >= {HUNG, *of_buckets} - in_words
    assert said[True] >= of_units
    assert not said[True] & (of_buckets - of_units)
