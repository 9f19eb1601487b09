"""What ranks of a sharded model do in ``test_late_units.py``: one is late, between two units.

Late is a matter of order, as in ``skew_scenarios.py``.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from hooktrace import Tracer, fsdp
from hooktrace.exporters import RecordFileExporter
from tests.distributed.sharded_scenarios import WIDTH, Setup, one_pass, sharded
from tests.distributed.skew_scenarios import KNOWN_S, LATE_S, Places, all_know, uncertainty_s

LATE = 1
STEPS = 30
"""Of each run, in which the late rank is late, from the first one whose clocks are known."""

Act = Callable[[], None]


def nowhere(model: Any, act: Act) -> None:
    """Nobody is late."""


def in_forward(model: Any, act: Act) -> None:
    """Be late in the forward pass of a unit, when its parameters are there."""
    model.blocks[1].inner.register_forward_pre_hook(lambda *_: act())


def in_backward(model: Any, act: Act) -> None:
    """Be late in the backward pass of a unit."""
    model.blocks[1].inner.register_full_backward_pre_hook(lambda *_: act())


def late_ranks(rank: int) -> dict[str, Any]:
    """Train three times; return where the files of each run are, and how late the rank was."""
    found = {}
    for where in (nowhere, in_forward, in_backward):
        directory = [tempfile.mkdtemp(prefix="hooktrace-units-") if rank == 0 else ""]
        dist.broadcast_object_list(directory, 0)
        found[where.__name__] = directory[0], _train(rank, where, Path(directory[0]))
        dist.barrier()
    return found


def _train(rank: int, where: Callable[[Any, Act], None], directory: Path) -> int:
    places, steps, late_s = Places(directory, rank), count(), LATE_S
    others = [other for other in range(dist.get_world_size()) if other != LATE]

    def act() -> None:
        place = f"step{next(steps)}"
        if rank == LATE:
            places.wait(place, others)
            time.sleep(late_s)
        else:
            places.reach(place)

    model = sharded(Setup())
    exporter = RecordFileExporter(directory)
    with Tracer([exporter], error_every=0) as tracer:
        handle = fsdp.trace(model, tracer=tracer, name="net")
        end = time.monotonic() + KNOWN_S
        known = False
        while not known:
            assert time.monotonic() < end, "the clocks are not known"
            one_pass(model, lambda: torch.ones(8, WIDTH))
            known = all_know(tracer)
        late_s = max(LATE_S, 8 * uncertainty_s(tracer))
        where(model, act)
        for _ in range(STEPS):
            one_pass(model, lambda: torch.ones(8, WIDTH))
        handle.remove()
    return int(late_s * 1e9)
