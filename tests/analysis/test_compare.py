"""Comparisons: verdicts, sentences, doubts, the command; of pairs of jobs: ``compared-*.txt``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace as like
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from hooktrace.analysis.compare import Measures, compare_runs
from hooktrace.analysis.compare import comparison as one
from hooktrace.analysis.compare.comparison import Difference
from hooktrace.analysis.compare.measure import grouping, step_table
from hooktrace.analysis.run.bootstrap import MEDIAN, Floats, Series
from hooktrace.analysis.run.parts import KINDS
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.runs import BASE, call, measured
from tests.analysis.shown import Page


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Measures, Measures]:
    """A job, and one on a slower network with a late rank, called ``base`` and ``other``."""
    slow = like(BASE, seed=1, bytes_per_second=2.5e8, late_ms={1: 3.0})
    folder = tmp_path_factory.mktemp("sides")
    return measured(BASE, folder / "a", "base"), measured(slow, folder / "b", "other")


def noise(seed: int, mean: float = 100.0, steps: int = 100) -> Floats:
    return np.random.default_rng(seed).normal(mean, 2.0, steps)


def difference(a: Floats, b: Floats) -> Difference:
    return one.difference(Series(a, a, MEDIAN), Series(b, b, MEDIAN))


def test_few_steps_are_unknown() -> None:
    found = difference(noise(0, steps=39), noise(1, 150))
    assert found.verdict == "unknown"
    assert found.why == "39 steps are too few to tell how they vary; 40 are needed"
    assert found.difference == pytest.approx(50, abs=2)
    assert difference(noise(0), np.zeros(0)).why == "one of the runs has no such number"


@pytest.mark.parametrize("steps", [(5200, 4300), (400, 20_000)])
def test_long_runs_of_unequal_length_are_compared(steps: tuple[int, int]) -> None:
    """Fewer resamples are drawn of long runs, and as many of either."""
    found = difference(noise(0, steps=steps[0]), noise(1, 110, steps[1]))
    assert found.differs
    assert found.difference == pytest.approx(10, abs=0.5)


def test_a_run_that_drifts_by_more_shows_nothing() -> None:
    """Half a run at another speed: the machine did something else, and may do so again."""
    step = np.concatenate([noise(0), noise(2, 130)])
    assert not difference(step, noise(1, 105, 200)).differs
    halves = noise(0, 100, 400) + np.repeat([-0.8, 0.8], 200)
    shown = difference(halves, noise(1, 101, 400))
    assert shown.drifts
    assert (shown.low or 0) > 0
    assert shown.why == "the halves of one run differ by more than the runs do"


def test_parts_of_each_step_add_up_to_it(sides: tuple[Measures, Measures]) -> None:
    """However they are grouped; and their differences to that of both sides' steps."""
    found = compare_runs(*sides)
    assert found.step is not None
    apart = sum(part.difference.apart for part in found.parts)
    assert apart == pytest.approx(found.step.difference, abs=5)
    for of in (grouping(sides[1], sides[1]), {"exposed": KINDS}):
        whole, *parts = step_table(sides[1], of).values()
        np.testing.assert_allclose(sum(parts), whole)


NOT_SHOWN = Difference(a=1e8, b=1.01e8, difference=1e6, low=-1e6, high=3e6, verdict="not shown")


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (
            replace(NOT_SHOWN, why="the halves of one run differ by more"),
            "Between these two runs, the step time is not shown to differ: 101 ms with other, 100 "
            "ms with base (\N{MINUS SIGN}1.00 to +3.00 ms), and the halves of one run differ by "
            "more.",
        ),
        (
            Difference(a=1e8, b=1e8, difference=0, low=0, high=0, verdict="same"),
            "Between these two runs, the step time is the same, 100 ms",
        ),
    ],
    ids=["drifts", "same"],
)
def test_the_sentence_says_only_what_is_shown(
    sides: tuple[Measures, Measures], step: Difference, said: str
) -> None:
    """Of the step time with the reason; a part that is not shown to differ is not said."""
    found = compare_runs(*sides)
    first, *others = found.quantities
    changed = replace(found, quantities=(replace(first, difference=step), *others))
    assert changed.sentence.startswith(said)
    parts = [replace(x, difference=replace(x.difference, verdict="not shown")) for x in found.parts]
    told = replace(found, parts=tuple(parts)).sentence
    assert told.endswith("; no stage is shown to account for it.")


EVIL = "<script>alert(1)</script>&\"'[bold]x[/nonsense]"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of a model, one of another, one all of whose steps are checked."""
    folder = tmp_path_factory.mktemp("runs")
    for name, fields in {
        "a1": {"hook": EVIL}, "a2": {"hook": EVIL, "seed": 1},
        "slow": {"seed": 2, "bytes_per_second": 2.5e8},
        "else": {"model": "other", "bucket_bytes": (1_000_000,)},
        "few": {"steps": 5, "error": 0.01, "error_every": 1},
    }.items():  # fmt: skip
        write_job(like(SyntheticJob(ranks=2, steps=50), **fields), folder / name)
    return folder


def test_all_against_the_first(runs: Path, tmp_path: Path) -> None:
    """In the terminal and as a page, with names as text; the page loads nothing."""
    out = tmp_path / "compare.html"
    result = call("compare", runs / "a1", runs / "a2", runs / "slow", "--html", out)
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    assert "not shown to differ" in text
    assert f"slower than {EVIL}: +1" in text
    page = Page(out.read_text("utf-8"))
    assert "script" not in page.tags
    assert page.tags.count("h2") == 2  # all against the first; each sentence stands before both
    before = " ".join(page.text[: page.text.index("What is compared")].split())
    assert before.count("Between these two runs, ") == 3
    assert EVIL in page.text
    links = [v for k, v in page.attributes if k in ("src", "href")]
    assert all(str(link).startswith("#") for link in links)


def test_json_is_for_programs(runs: Path) -> None:
    content = msgspec.json.decode(call("compare", runs / "a1", runs / "slow", "--json").output)
    assert content["schema"] == 5
    (found,) = content["comparisons"]
    period = next(one for one in found["quantities"] if one["key"] == "period")
    assert period["difference"]["verdict"] == "differs"
    assert 1.1e7 < period["difference"]["difference"] < 1.3e7
    assert found["b"]["name"] == "slow"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a1"], "compare: one run alone is nothing to compare; pass two or more"),
        (["a1", "else"], "a1 has synthetic, else has other; pass --model synthetic=other"),
        (["a1", "slow", "--model", "nope"], "pass --model synthetic"),
        (["a1", "few"], "train for some more steps"),
    ],
)
def test_what_cannot_be_is_said_with_its_fix(runs: Path, words: Iterable[str], said: str) -> None:
    result = call("compare", *(runs / one if (runs / one).is_dir() else one for one in words))
    assert result.exit_code == 2
    assert " ".join(result.stderr.split()).endswith(said)


def test_two_models_are_compared_by_step_time_alone(runs: Path) -> None:
    result = call("compare", runs / "a1", runs / "else", "--model", "synthetic=other")
    assert result.exit_code == 0
    assert "they are not of the same model." in result.output.replace("\n", " ")
    assert "exposed, ms" not in result.output
