"""The tables' cells: MB and ms of what is known, a dash for what is not."""

from __future__ import annotations

from pathlib import Path

from hooktrace.analysis.report.tables import bucket_table, rank_table
from tests.analysis.report.jobs import facts_of
from tests.analysis.run.files import run_of, steps_of, text_of, write_ranks
from tests.analysis.shown import named
from tests.exporters.records_sample import make_step, opaque


def test_a_row_for_each_bucket_and_each_rank(tmp_path: Path) -> None:
    """The sample's: 0.1 ms compress, 0.4 queue, 1 wire, 0.5 decompress."""
    write_ranks(tmp_path, {r: text_of(run_of(r), steps_of(9)) for r in range(2)})
    facts = facts_of(tmp_path)
    first, *_ = named(bucket_table(facts))
    names = list(first)
    assert names[6:10] == ["compress", "queue", "wire", "decompress"]
    assert [first[name] for name in ("bucket", "ready", "time", "p95")] == [
        "0", "0.00", "2.00", "2.00",
    ]  # fmt: skip
    assert [first[name] for name in names[6:10]] == ["0.10", "0.40", "1.00", "0.50"]
    assert first["error"] == "-"
    ranks = named(rank_table(facts))
    assert [(r["rank"], r["host"], r["steps"]) for r in ranks] == [
        ("0", "host-a", "9"), ("1", "host-a", "9"),
    ]  # fmt: skip
    assert ranks[1]["exposed"] == "2.00"


def test_what_an_opaque_hook_does_not_tell_is_a_dash(tmp_path: Path) -> None:
    """And it has no column for stages."""
    write_ranks(
        tmp_path, {0: text_of(run_of(0), [opaque(make_step(i), sent=None) for i in (1, 2)])}
    )
    cells, *_ = named(bucket_table(facts_of(tmp_path)))
    assert not {"wire", "compress"} & set(cells)
    assert {cells[name] for name in ("sent", "wait", "busbw", "error")} == {"-"}
