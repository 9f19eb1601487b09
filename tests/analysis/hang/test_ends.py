"""How far each rank came, and who is behind."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from hooktrace.analysis.hang.ends import Behind, LastStep, behind, rank_ends
from tests.analysis.run.files import run_of, steps_of, text_of, write_ranks
from tests.analysis.runs import run_in

WALL_NS = 1_700_000_000_000_000_000


def test_the_last_whole_step_counts(tmp_path: Path) -> None:
    """Not one that was cut off; of each rank with its moment, and whether the file has its end."""
    steps = steps_of(5)
    cut = [*steps[:4], (replace(steps[4][0], complete=False), steps[4][1])]
    write_ranks(tmp_path, {0: text_of(run_of(0), steps), 1: text_of(run_of(1), cut, ended=False)})
    ends = rank_ends(run_in(tmp_path))
    at = [WALL_NS + step.done_ns - 1_000_000_000 for step, _ in steps]
    assert [(e.rank, e.host, e.last, e.closed) for e in ends] == [
        (0, "host-a", (LastStep("net", 4, at[4]),), True),
        (1, "host-a", (LastStep("net", 3, at[3]),), False),
    ]
    assert behind(ends) == [Behind(model="net", ranks=(1,), step=3, furthest=4)]


def test_a_rank_without_a_step_is_behind(tmp_path: Path) -> None:
    """And of ranks that came as far as each other none is."""
    texts = {rank: text_of(run_of(rank), steps_of(3)) for rank in range(2)}
    write_ranks(tmp_path, texts)
    assert behind(rank_ends(run_in(tmp_path))) == []
    write_ranks(tmp_path, {1: text_of(run_of(1), [], ended=False)})
    found = behind(rank_ends(run_in(tmp_path)))
    assert found == [Behind(model="net", ranks=(1,), step=None, furthest=2)]
