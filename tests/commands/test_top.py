"""``hooktrace top``: the picture of a snapshot, each second.

In real jobs, and on a page of torch's debug server: ``distributed/test_control.py``.
"""

from __future__ import annotations

import itertools
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console

from hooktrace.commands.top import live
from hooktrace.commands.top.live import pictures
from hooktrace.commands.top.picture import Picture
from hooktrace.ranks.whole_job.job_steps import JobSnapshot, JobSteps
from hooktrace.records.errors import UsageError
from tests.ranks.whole_job.parts import Seconds, message_of


def job(
    ranks: int = 4, steps: int = 20, *, late: int = 3, hangs: tuple[str, ...] = ()
) -> JobSnapshot:
    """Return a job of hosts of eight ranks, one of which comes 7 ms after the others."""
    hub = JobSteps(ranks, Seconds())
    for first in range(0, ranks, 8):
        of_host = range(first, min(first + 8, ranks))
        message = message_of(of_host, range(1, steps + 1), late=late, host=f"node{first // 8}")
        hub.take(first, message)
    return hub.snapshot("", hangs)


def screen(
    shown: JobSnapshot, *, sort: str = "delay", width: int = 80, height: int = 24
) -> list[str]:
    output = StringIO()
    console = Console(
        file=output, width=width, height=height, force_terminal=True, color_system=None
    )
    console.print(Picture("runs/a", shown, sort=sort), height=height, end="")
    return [line.rstrip() for line in output.getvalue().split("\n")]


def screen_of(picture: Picture) -> str:
    output = StringIO()
    Console(file=output, width=100).print(picture, crop=False)
    return output.getvalue()


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
        "  rank     step delay ms period ms exposed ms  host",
        "     3       20     7.00       100       5.00  node0",
        "     0       20    <0.20       100       5.00  node0",
        "     1       20    <0.20       100       5.00  node0",
    ]
    assert " ".join(lines[-3:-1]) == f"hang: {HANG}"
    assert lines[-1].startswith("Ctrl-C quits")


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


def test_who_is_silent_or_has_anomalies_is_marked() -> None:
    """Each in the row of the rank."""
    shown = job()
    first, *others = shown.ranks
    line = replace(first.line, anomalies=3, anomaly="nan step 7 bucket 1")
    marked = replace(first, line=line, age_s=12.3)
    lines = screen(replace(shown, ranks=(marked, *others)), width=120)
    (row,) = (line for line in lines if line.startswith("     3 "))
    assert row.split("node0")[1] == "  silent for 12 s  3 anomalies, last: nan step 7 bucket 1"


def test_a_sort_is_asked_for() -> None:
    """All but ranks come with the most on top; the heading says by what."""
    lines = screen(job(), sort="rank")
    assert [line.split()[0] for line in lines[8:12]] == ["0", "1", "2", "3"]
    shown = job()
    first, *others = shown.ranks
    marked = replace(first, line=replace(first.line, anomalies=3))
    lines = screen(replace(shown, ranks=(*others, marked)), sort="anomalies")
    assert lines[7].endswith("(by anomalies)")
    assert lines[8].startswith(f"     {first.line.rank} ")


def test_a_job_that_does_not_answer_is_shown_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its age, until it answers again."""
    error: list[UsageError] = []

    def look() -> JobSnapshot:
        for one in error:
            raise one
        return job()

    readings = itertools.count(100)
    clock = SimpleNamespace(monotonic=lambda: next(readings), sleep=lambda _: None)
    monkeypatch.setattr(live, "time", clock)
    drawn = pictures(look, "runs/a", "delay")
    assert "does not answer" not in screen_of(next(drawn))
    error.append(UsageError("no answer within 2 s"))
    assert "this is 1 s old, the job does not answer: no answer within 2 s" in screen_of(
        next(drawn)
    )
    error.clear()
    assert "does not answer" not in screen_of(next(drawn))


def test_without_a_terminal_it_is_one_picture(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With all ranks, of the model that is asked for."""
    asked: list[tuple[object, ...]] = []

    def ask(*question: object) -> bytes:
        asked.append(question)
        return msgspec.msgpack.encode(job())

    monkeypatch.setattr(live, "ask", ask)
    monkeypatch.setattr(live, "address_of", lambda *_: None)
    live.run_top(Path("runs/a"), connect=None, sort="delay", model="critic")
    assert [question[:3] for question in asked] == [(None, "job", b"critic")]
    shown = capsys.readouterr().out
    assert sum("node0" in line for line in shown.splitlines()) == 4
    assert shown.endswith("\n")
    assert "Ctrl-C" not in shown
    assert "\n\n" not in shown
