"""Where another hook becomes the fastest, and which are worth a line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hooktrace.analysis.whatif.sweep import MOST_LINES, chosen, crossings

from .sweeps import made_up


def test_crossings_are_where_two_formulas_are_equal() -> None:
    """PowerSGD and fp16 at 312 MB/s, fp16 and all-reduce at 840, each to a few percent."""
    slow, fast = crossings(made_up())
    assert (slow.slower, slow.faster) == ("powersgd-rank4", "fp16")
    assert (fast.slower, fast.faster) == ("fp16", "allreduce")
    assert slow.bandwidth == pytest.approx(7.8e6 / 25e-3, rel=0.06)
    assert fast.bandwidth == pytest.approx(8.4e6 / 10e-3, rel=0.15)  # the run's own by 1 % earlier
    assert slow.step_ms == pytest.approx(96.9, rel=0.02)


def test_a_line_on_anothers_crosses_nothing() -> None:
    """Differences below 1 % are none, so two hooks do not change places at every bandwidth."""
    one = made_up()
    rng = np.random.default_rng(0)
    own = one.step_ms[0]
    rows = np.array([own, own * rng.uniform(0.995, 1.005, own.size)])
    twins = replace(one, hooks=("allreduce", "allgather"), step_ms=rows)
    assert crossings(twins) == []


def test_the_runs_own_hook_and_the_fastest_are_drawn() -> None:
    """Of many, however slow the own one is."""
    one = made_up()
    names = ("allreduce", *(f"h{i}" for i in range(9)))
    rows = np.array([one.step_ms[0] * factor for factor in (50.0, *range(1, 10))])
    many = replace(one, hooks=names, step_ms=rows)
    found = [names[row] for row in chosen(many)]
    assert len(found) == MOST_LINES
    assert found[:2] == ["allreduce", "h0"]
    assert "h8" not in found
