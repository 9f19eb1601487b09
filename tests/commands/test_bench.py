"""``hooktrace bench``: rounds in turns, verdicts that noise does not explain, every row printed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from hooktrace.commands.bench import cost, harness
from hooktrace.commands.bench.harness import in_turns
from hooktrace.commands.bench.table import Row
from hooktrace.testing.ranks import run_ranks


def test_each_round_has_all_sides_in_an_order_of_its_own() -> None:
    """Whatever the order, each side's number stands in its place."""
    called: list[int] = []

    def side(number: int) -> int:
        called.append(number)
        return 10 * number

    found = list(islice(in_turns([partial(side, number) for number in range(3)]), 20))
    assert found == [[0, 10, 20]] * 20
    orders = {tuple(called[i : i + 3]) for i in range(0, 60, 3)}
    assert all(sorted(order) == [0, 1, 2] for order in orders)
    assert len(orders) > 3


@pytest.mark.slow
def test_the_interval_covers_the_median_in_95_cases_of_100() -> None:
    """Of a skewed distribution whose median is known, for few samples and for many."""
    source = random.Random(0)
    true_median = 1.0  # of exp(normal)
    for count in (8, 40, 400):
        hits = 0
        for _ in range(2000):
            row = Row("x", [source.lognormvariate(0, 1) for _ in range(count)], "s")
            least, most = row.interval
            hits += least <= true_median <= most
        # Ranks are whole numbers, so the interval is never narrower than promised.
        assert 0.95 <= hits / 2000 <= 0.999, count


@pytest.mark.parametrize(
    ("values", "budget", "verdict"),
    [
        ([1.0] * 20, None, "-"),
        ([1.0] * 20, 1.0, "ok"),
        ([0.8] * 9 + [1.1] * 11, 1.0, "noise"),
        ([0.8] * 3 + [1.1] * 17, 1.0, "over"),
        ([2.0], 1.0, "over"),
    ],
)
def test_verdict(values: list[float], budget: float | None, verdict: str) -> None:
    """Over only where the whole interval is."""
    assert Row("x", values, "ratio", budget=budget).verdict == verdict


def _one_round(measure: Callable[[float], Any]) -> Any:
    """Measure on a rank, whose process is its own, as briefly as can be."""
    harness._LEAST_ROUNDS = 1
    return measure(0.0)


@pytest.mark.slow
@pytest.mark.long
def test_every_row_is_printed_and_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The cost per bucket of each kind of hook beside the noise, and that of a whole step."""

    def few(ranks: int, measure: Callable[..., Any], seconds: float) -> list[Any]:
        assert seconds > 0
        return run_ranks(ranks, _one_round, measure)

    monkeypatch.setattr(cost, "run_ranks", few)
    numbers = tmp_path / "numbers.json"
    assert cost.run(quick=True, json_path=numbers) == 0
    rows = json.loads(numbers.read_text())["rows"]
    assert [row["what"] for row in rows] == [
        "per bucket: control, the staged hook against itself",
        "per bucket: floor, a frame, two clocks, an append",
        "per bucket: staged hook, traced - untraced",
        "per bucket: torch's hook, traced - untraced",
        "the same where the step is timed, one in ten",
        "per bucket: hook done at once, traced - untraced",
        "whole step: traced / untraced",
        "whole step: the same, processor time of all threads",
        "a step, untraced",
    ]
    assert {row["samples"] for row in rows} == {1}
    printed = capsys.readouterr()
    assert all(row["what"] in printed.out for row in rows)
    assert printed.err.splitlines() == [
        "measuring what tracing adds per bucket: about 15 s",
        "measuring what tracing adds to a whole step: about 38 s",
    ]
