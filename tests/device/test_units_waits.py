"""Events before units are waited for, under capture; all else: ``test_torch_waits.py``."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hooktrace import Tracer
from hooktrace.staging.devices import EventPool
from hooktrace.staging.slots import ModelState
from hooktrace.staging.units import ShardedModel, UnitInfo, UnitWaits

from .simulated_streams import SimulatedStreams


def test_a_captured_stream_has_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would never pass: what is exposed is not known, and counted."""
    pool, pushed = EventPool(), list[Any]()
    with SimulatedStreams() as device, Tracer(channel=False, run_id="fake") as tracer:
        waits = UnitWaits(pool, pushed.append)
        model = ShardedModel(ModelState("net", "fully_shard", {}, 0), tracer, waits=waits)
        unit = UnitInfo("block", (("weight", (8, 8)),))
        with device.stream(device.Stream()):
            assert model.takes(unit, "all_gather")
            call = model.begin(unit, torch.zeros(4), 0)
            assert call is not None
            assert call.on_device
            call.over()
        created = pool.created
        with monkeypatch.context() as patch:
            patch.setattr(torch.cpu, "is_current_stream_capturing", lambda: True, raising=False)
            waits.before(call)
        waits.before(call)
    assert (call.before_wait, pool.created) == (None, created)
    (failure,) = pushed
    assert "captured into a graph" in failure.why
