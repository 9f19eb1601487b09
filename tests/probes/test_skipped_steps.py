"""What a loss scaler looks for is no anomaly, unless it never finds a scale."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hooktrace import AnomalyRecord, Tracer, hooks, instrument
from hooktrace.probes.skipped_steps import SkippedSteps
from tests.exporters.records_sample import make_anomaly


def of_kind(kind: str) -> AnomalyRecord:
    return make_anomaly(kind=kind)


def told(found: list[list[str]], scaled: bool) -> list[list[str]]:
    """Return what is told of looks at one step after another; the first bucket is always finite."""
    skipped, told = SkippedSteps(), []
    for step, kinds in enumerate(found):
        looks = (
            skipped.others(map(of_kind, each), model="net", step=step, scaled=scaled)
            for each in ([], kinds)
        )
        told.append([one.kind for look in looks for one in look])
    return told


GRADIENT, AVERAGE = ["nonfinite_gradient"], ["nonfinite_average"]
TRIED = [GRADIENT, AVERAGE, [], GRADIENT, ["replicas_diverge"]]


@pytest.mark.parametrize(
    ("found", "scaled", "expected"),
    [
        (TRIED, True, [[], [], [], [], ["replicas_diverge"]]),
        (TRIED, False, TRIED),
        ([GRADIENT] * 42, True, [[]] * 40 + [GRADIENT] * 2),
        ([GRADIENT] * 40 + [[]] + [GRADIENT] * 40, True, [[]] * 81),
    ],
    ids=["tried", "not scaled", "no scale", "hope"],
)
def test_what_a_scaler_leaves_out(
    found: list[list[str]], scaled: bool, expected: list[list[str]]
) -> None:
    """What it looks for, until the scale cannot be the reason; a finite step is hope."""
    assert told(found, scaled) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("poison", "kinds"), [(1.0, set()), (float("nan"), {"nonfinite_gradient"})]
)
@pytest.mark.usefixtures("alone")
def test_training_in_float16(poison: float, kinds: set[str]) -> None:
    """A scale that is too large at first ends nothing; a loss that is NaN is told of."""
    ddp = DistributedDataParallel(nn.Sequential(*(nn.Linear(8, 8) for _ in range(2))))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**35)
    skipped = 0
    with Tracer(debug=True, error_every=0) as tracer:
        instrument(ddp, hooks.fp16_compress_hook, tracer=tracer)
        for _ in range(50):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = ddp(torch.ones(4, 8)).float().square().mean() * poison
            scaler.scale(loss).backward()
            before = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            skipped += scaler.get_scale() < before
        assert skipped > 5
        assert {a.kind for a in tracer.anomalies()} == kinds
