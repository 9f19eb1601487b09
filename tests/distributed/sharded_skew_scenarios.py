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
LATE_IN_PARTS = 2
"""The late rank where collectives have two of the four ranks, or some of them."""
LATE_IN_PARTS_S = 0.05
"""The least that it is late by: waits of one group are taken from those of another."""
STEPS = 30
"""Of each run, in which the late rank is late, from the first one whose clocks are known."""

Act = Callable[[], None]


def in_forward(model: Any, act: Act) -> None:
    """Be late in the forward pass of a unit, when its parameters are there."""
    model.blocks[1].inner.register_forward_pre_hook(lambda *_: act())


def in_backward(model: Any, act: Act) -> None:
    """Be late in the backward pass of a unit."""
    model.blocks[1].inner.register_full_backward_pre_hook(lambda *_: act())


def before_backward(model: Any, act: Act) -> None:
    """Be late when the forward pass is over."""
    model.head.register_forward_hook(lambda *_: act())


HYBRID, RESHARDED = Setup(mesh="two by two"), Setup({"reshard_after_forward": 2})
"""In the first a collective has two ranks; in the second the gathers of the backward pass do."""


def late_ranks(rank: int) -> dict[str, Any]:
    """Train twice; return where the files of each run are, and how late the rank was."""
    places = (in_forward, in_backward)
    return {where.__name__: _run(rank, where, Setup(), (LATE, LATE_S)) for where in places}


def late_in_parts(rank: int) -> dict[str, Any]:
    """Do the same where collectives have a part of the ranks."""
    return {
        f"{name}, before_backward": _run(
            rank, before_backward, setup, (LATE_IN_PARTS, LATE_IN_PARTS_S)
        )
        for name, setup in (("hybrid", HYBRID), ("resharded", RESHARDED))
    }


def _run(
    rank: int, where: Callable[[Any, Act], None], setup: Setup, late: tuple[int, float]
) -> tuple[str, int]:
    """Train; ``late``: which rank is, and by how many seconds at least."""
    made = [tempfile.mkdtemp(prefix="hooktrace-units-") if rank == 0 else ""]
    dist.broadcast_object_list(made, 0)
    directory, (late_rank, late_s) = Path(made[0]), late
    places, steps = Places(directory, rank), count()
    others = [other for other in range(dist.get_world_size()) if other != late_rank]

    def act() -> None:
        place = f"step{next(steps)}"
        if rank == late_rank:
            places.wait(place, others)
            time.sleep(late_s)
        else:
            places.reach(place)

    model = sharded(setup)
    exporter = RecordFileExporter(directory)
    with Tracer([exporter], error_every=0) as tracer:
        handle = fsdp.trace(model, tracer=tracer, name="net")
        end = time.monotonic() + KNOWN_S
        known = False
        while not known:
            assert time.monotonic() < end, "the clocks are not known"
            one_pass(model, lambda: torch.ones(8, WIDTH))
            known = all_know(tracer)
        late_s = max(late_s, 8 * uncertainty_s(tracer))
        where(model, act)
        for _ in range(STEPS):
            one_pass(model, lambda: torch.ones(8, WIDTH))
        handle.remove()
    dist.barrier()
    return made[0], int(late_s * 1e9)
