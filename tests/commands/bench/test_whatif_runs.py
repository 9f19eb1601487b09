"""The predicted runs: what their models' gradients are, and how often a setting runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hooktrace.commands.bench import whatif_runs
from hooktrace.commands.bench.whatif_runs import STACKS, Setting, Stack, run_all


@pytest.mark.slow
@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: stack.name)
def test_gradients_are_numbers_that_fp16_holds(stack: Stack) -> None:
    """Or neither a hook's error nor its result would be known."""
    model = stack.build()
    model(torch.randn(16, stack.width)).square().mean().backward()
    largest = [float(p.grad.abs().max()) for p in model.parameters() if p.grad is not None]
    assert len(largest) == 2 * stack.layers
    assert 1e-5 < max(largest) < 1e3


def test_settings_run_in_turns_until_each_has_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A calibrated run is one; record files of each time are apart."""
    short, long, calibrated = (
        Setting(STACKS[0], "fp16", cap_mb, 6.0, calibrate=is_one)
        for cap_mb, is_one in ((1.0, False), (5.0, False), (25.0, True))
    )
    takes = {short: 2.5, long: 7.0, calibrated: 1.0}
    ran: list[str] = []

    def run(setting: Setting, directory: str) -> list[float]:
        ran.append(directory)
        return [takes[setting]]

    monkeypatch.setattr(whatif_runs, "run", run)
    monkeypatch.setattr(whatif_runs, "_agreed", float)
    found = run_all([short, long, calibrated], "root")
    assert found == [[2.5, 2.5, 2.5], [7.0], [1.0]]
    assert [Path(one).parts[1] for one in ran] == ["0", "0", "0", "1", "2"]
    assert len(set(ran)) == len(ran)
