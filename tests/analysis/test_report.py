"""The report as a whole: JSON, page, terminal, errors; what it says of jobs is in ``golden/``."""

from __future__ import annotations

import json
import re
from dataclasses import replace as like
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from hooktrace.analysis.report import build_report
from hooktrace.analysis.report.facts import noise_ns
from hooktrace.analysis.report.findings import HUNG, RULES, UNIT_RULES, findings
from hooktrace.analysis.report.tables import bucket_table, rank_table
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.golden import HERE
from tests.analysis.run.files import run_of, steps_of, text_of, write_ranks
from tests.analysis.runs import call, facts_of, report_of, run_in
from tests.analysis.sharded_jobs import sharded
from tests.analysis.shown import Page, page_of

JOB = SyntheticJob(ranks=3, steps=30, late_ms={1: 5.0}, error=0.02, anomaly_rank=2)


def test_a_job_can_assert_on_findings(tmp_path: Path) -> None:
    """By rule, rank and gain, and on facts by bucket and rank, with what nobody knows as null.

    A page that is asked for is written beside it.
    """
    write_job(like(JOB, error=None), tmp_path)
    out = tmp_path / "report.html"
    result = call("report", tmp_path, "--json", "--html", out)
    report = json.loads(result.stdout, parse_constant=pytest.fail)
    assert out.read_text().startswith("<!doctype html>")
    (model,) = report["models"]
    by_rule = {one["rule"]: one for one in model["findings"]}
    late, wrong = by_rule["ranks_wait"], by_rule["nonfinite_gradient"]
    assert (late["rank"], late["bucket"], late["is_wrong"]) == (1, 0, False)
    assert (wrong["rank"], wrong["bucket"], wrong["is_wrong"]) == (2, 1, True)
    assert (4e6 < late["gain_ns"] < 6e6, wrong["gain_ns"], report["schema"]) == (True, None, 6)
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
    assert "<summary>38 more ranks</summary>" in page_of(report)


@pytest.mark.parametrize(
    ("content", "problem", "fix"),
    [
        (None, "there is no record file in", "set HOOKTRACE_RECORD_DIR in the job"),
        ("rubbish\n", "no record file of hooktrace: no line of it is a record", ""),
        (text_of(run_of(0), []), "hold no step", "end with tracer.close()"),
    ],
    ids=["no file", "rubbish", "no step"],
)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, content: str | None, problem: str, fix: str
) -> None:
    """One line on standard error, exit code 2, and nothing is printed or written."""
    if content is not None:
        write_ranks(tmp_path, {0: content})
    out = tmp_path / "out"
    commands = [["report", "--html", out], ["export", "--out", out], ["report", "--json"]]
    for command in [*commands, *([["hang"]] if content is None else [])]:
        result = call(command[0], tmp_path, *command[1:])
        assert (result.exit_code, result.stdout) == (2, "")
        assert len(result.stderr.splitlines()) == 1
        assert problem in result.stderr
        assert result.stderr.rstrip().endswith(fix)
        assert not out.exists()


@pytest.mark.parametrize("command", [["report", "--html"], ["export", "--out"]])
def test_where_it_cannot_write_it_says_so_first(tmp_path: Path, command: list[str]) -> None:
    """Before anything is read; and a logdir that does not exist is named."""
    name, option = command
    result = call(name, tmp_path, option, tmp_path / "nowhere" / "out")
    assert result.exit_code == 2
    assert "out: No such file or directory; pass a file in" in result.stderr
    result = call(name, tmp_path / "nothing", option, tmp_path / "out")
    assert result.exit_code == 2
    assert f"there is no {tmp_path / 'nothing'}; pass the logdir" in result.stderr


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
    assert "no model is called 'third'; pass --model one of net, other" in none.stderr


def test_how_well_the_usual_step_is_known() -> None:
    """1.96 x 1.2533 sigma / sqrt(n), the interval of a normal median; of few steps nothing is."""
    steps = np.random.default_rng(1).normal(100e6, 5e6, 4000)
    assert noise_ns(steps) == pytest.approx(1.96 * 1.2533 * 5e6 / 4000**0.5, rel=0.3)
    assert noise_ns(steps[:15]) is None


def test_a_gain_below_the_noise_is_small(tmp_path: Path) -> None:
    """However large a share of the step: nobody could tell that it came true."""
    write_job(SyntheticJob(ranks=2, steps=40, bytes_per_second=2e8), tmp_path)
    facts = facts_of(tmp_path)
    for model, is_small in ((facts, False), (replace(facts, period_noise_ns=1e9), True)):
        (found,) = [one for one in findings(model) if "a 16-bit hook" in one.sentence]
        assert found.is_small == is_small


def test_units_whose_assignment_could_not_be_read(tmp_path: Path) -> None:
    """What all of them wait is known, and not which one does."""
    sharded(late_ms={1: 30.0})(tmp_path)
    for file in tmp_path.rglob("*.jsonl"):
        lines = [line for line in file.read_text().split("\n") if '"assignment"' not in line]
        file.write_text("\n".join(lines))
    assert any("Ranks wait for each other" in one.sentence for one in findings(facts_of(tmp_path)))


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
