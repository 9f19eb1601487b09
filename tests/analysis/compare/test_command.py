"""The subcommand: what it prints and writes, and how it says no."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.report.test_command import call
from tests.analysis.shown import Page

EVIL = "<script>alert(1)</script>&\"'[bold]x[/nonsense]"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of a model, one of another, one of few steps."""
    folder = tmp_path_factory.mktemp("runs")
    for name, job in {
        "a1": SyntheticJob(ranks=2, steps=50, hook=EVIL),
        "a2": SyntheticJob(ranks=2, steps=50, hook=EVIL, seed=1),
        "slow": SyntheticJob(ranks=2, steps=50, seed=2, bytes_per_second=2.5e8, model="synthetic"),
        "else": SyntheticJob(ranks=2, steps=50, model="other", bucket_bytes=(1_000_000,)),
        "few": SyntheticJob(ranks=2, steps=5, error=0.01, error_every=1),
    }.items():
        write_job(job, folder / name)
    return folder


def test_all_against_the_first(runs: Path, tmp_path: Path) -> None:
    """In the terminal and as a page, with names as text; the page loads nothing."""
    out = tmp_path / "compare.html"
    result = call("compare", runs / "a1", runs / "a2", runs / "slow", "--html", out)
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    assert "a2 of" not in text
    assert "not shown to differ" in text
    assert "ms of wire transfer" in text
    assert "allreduce_hook is 1" in text
    assert f"slower than {EVIL}: +1" in text
    page = Page(out.read_text("utf-8"))
    assert "script" not in page.tags
    assert page.tags.count("h2") == 2  # all against the first; each sentence stands before both
    before = " ".join(page.text[: page.text.index("What is compared")].split())
    assert before.count("Between these two runs, ") == 3
    assert EVIL in page.text
    assert not [
        v for k, v in page.attributes if k in ("src", "href") and not str(v).startswith("#")
    ]


def test_json_is_for_programs(runs: Path) -> None:
    result = call("compare", runs / "a1", runs / "slow", "--json")
    content = msgspec.json.decode(result.output)
    assert content["schema"] == 4
    (found,) = content["comparisons"]
    period = next(one for one in found["quantities"] if one["key"] == "period")
    assert period["difference"]["verdict"] == "differs"
    assert 1.1e7 < period["difference"]["difference"] < 1.3e7
    assert found["b"]["name"] == "slow"


def no(*arguments: object) -> str:
    result = call("compare", *arguments)
    assert result.exit_code == 2
    return " ".join(result.stderr.split())


def test_what_cannot_be_is_said_with_its_fix(runs: Path) -> None:
    a, other = runs / "a1", runs / "else"
    assert no(a) == "hooktrace compare: one run alone is nothing to compare; pass two or more"
    assert no(a, other).endswith(
        "no model is in both: a1 has synthetic, else has other; pass --model synthetic=other"
    )
    assert no(a, runs / "slow", "--model", "nope").endswith("pass --model synthetic")
    assert "there is no" in no(a, runs / "nowhere")
    assert no(a, runs / "few").endswith("train for some more steps")


def test_two_models_are_compared_by_step_time_alone(runs: Path) -> None:
    result = call("compare", runs / "a1", runs / "else", "--model", "synthetic=other")
    assert result.exit_code == 0
    assert "step times are compared and nothing else" in " ".join(result.output.split())
    assert "they are not of the same model." in result.output.replace("\n", " ")
    assert "exposed, ms" not in result.output
