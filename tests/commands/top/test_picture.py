"""The picture of a snapshot at two sizes of terminal: true, whole, and no wider than that."""

from __future__ import annotations

from msgspec.structs import replace

from hooktrace.commands.top.picture import View, sorted_ranks
from hooktrace.ranks.whole_job.job_steps import JobSteps

from .snapshots import job, screen

HANG = (
    "bucket 5 of step 120 has waited 31 s on ranks 0, 1, 3 for rank 2, which is in "
    "`data.py:88 next_batch`, 1 step behind"
)


def test_a_small_job_at_80_by_24() -> None:
    """Heading, last step, strips, ranks by lateness with what the clocks may be off by, a hang."""
    lines = screen(job(hangs=(HANG,)))
    assert len(lines) == 24
    assert max(map(len, lines)) <= 80
    assert lines[:11] == [
        "hooktrace top  runs/a  model net (fp16_compress_hook)",
        "4 of 4 ranks have told",
        "step 20, 4 ranks: period 100 ms (100 to 100); exposed 5.00 ms (5.00 to 5.00);",
        "delay 7.00 ms ± 0.20, last rank 3",
        "delay   ████████████████████  20 steps, up to 7.00 ms",
        "exposed ████████████████████  20 steps, up to 5.00 ms",
        "each rank, means of its last steps:",
        "  rank     step behind delay ms period ms exposed ms  host",
        "     3       20            7.00       100       5.00  node0",
        "     0       20           <0.20       100       5.00  node0",
        "     1       20           <0.20       100       5.00  node0",
    ]
    assert " ".join(lines[-3:-1]) == f"hang: {HANG}"
    assert lines[-1].startswith("q quit  s sort")


def test_a_large_job_at_200_by_50() -> None:
    """The latest ranks fill the terminal, and it says that there are more."""
    lines = screen(job(1000, late=700), width=200, height=50)
    assert len(lines) == 50
    assert lines[1] == "1,000 of 1,000 ranks have told, the latest 128 are shown"
    assert lines[2].endswith("delay 7.00 ms ± 0.20, last rank 700")
    assert sum("node" in line for line in lines) == 50 - 8


def test_rows_are_sorted_with_the_most_on_top() -> None:
    """Of equal ones the lower rank; what is not known is least."""
    given = job().ranks
    rows = tuple(
        replace(row, line=replace(row.line, exposed_ns=ns, rank=rank))
        for row, ns, rank in zip(given, (None, 5, 9, 5), (1, 3, 0, 2), strict=True)
    )
    assert [row.line.rank for row in sorted_ranks(rows, "exposed")] == [0, 2, 3, 1]
    assert [row.line.rank for row in sorted_ranks(rows, "rank")] == [0, 1, 2, 3]
    assert [row.line.rank for row in sorted_ranks(rows, "delay")] == [1, 3, 0, 2]
    shown = screen(job(200), View(sort="rank"))
    assert [line.split()[0] for line in shown if "node" in line][:2] == ["0", "1"]


def test_what_is_not_known_is_not_said() -> None:
    """Without clocks nobody is last; without steps there is nothing."""
    shown = job()
    steps = tuple(replace(s, arrival=None, exposed=None) for s in shown.steps)
    ranks = tuple(replace(r, arrival_delay_ns=None) for r in shown.ranks)
    lines = screen(replace(shown, steps=steps, ranks=ranks))
    assert "exposed unknown; delay unknown" in lines[2]
    assert "last rank" not in "".join(lines)
    assert lines[3] == f"delay   {'·' * 20}  20 steps"
    assert "no step yet" in screen(JobSteps(2).snapshot())[2]


def test_who_is_behind_silent_or_has_anomalies_is_marked() -> None:
    """Each in the row of the rank."""
    shown = job()
    first, *others = shown.ranks
    line = replace(first.line, anomalies=3, anomaly="nan step 7 bucket 1")
    marked = replace(first, line=line, behind=2, age_s=12.3)
    lines = screen(replace(shown, ranks=(marked, *others)), width=120)
    (row,) = (line for line in lines if line.startswith("     3 "))
    assert row.split()[2] == "2"
    assert row.split("node0")[1] == "  silent for 12 s  3 anomalies, last: nan step 7 bucket 1"


def test_what_the_hub_left_out_is_said() -> None:
    """Steps by the plan, late parts, lost steps."""
    shown = replace(job(), every=4, late=3, lost=2)
    assert screen(shown, width=120)[1] == (
        "4 of 4 ranks have told of each 4th step; 3 parts of steps came late, 2 steps had no room"
    )


def test_a_small_terminal_has_the_keys_at_least() -> None:
    """And nothing wraps."""
    lines = screen(job(), width=20, height=4)
    assert len(lines) == 4
    assert lines[-1].startswith("q quit")
    assert all(len(line) <= 20 for line in lines)
    assert screen(job(), width=20, height=1)[0].startswith("q quit")
