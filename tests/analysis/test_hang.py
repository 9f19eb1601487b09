"""``hooktrace hang RUN``: what it prints, its exit code; of whole jobs it is in ``golden/``."""

from __future__ import annotations

import dataclasses
import json
import os
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.analysis.hang import LastStep, RankEnd, are_apart, hang_rows, rank_ends
from hooktrace.analysis.run import Hang
from hooktrace.records.files import record_path
from hooktrace.testing.synthetic import SyntheticJob, write_job
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from tests.analysis.run.files import run_of, steps_of, text_of, write_ranks
from tests.analysis.runs import call as call_any
from tests.analysis.runs import run_in
from tests.distributed.harness import REPOSITORY
from tests.docs.pages import Page

JOB = SyntheticJob(steps=20)
call = partial(call_any, "hang")


def end_after(folder: Path, rank: int, step: int, *, closed: bool) -> None:
    """Cut a rank's file after the line of a step, as a killed process leaves it, or ends early."""
    path = record_path(folder, rank)
    lines = path.read_text().splitlines(keepends=True)
    steps = [i for i, line in enumerate(lines) if '"kind":"step"' in line]
    end = lines[steps[-1] + 1 :] if closed else []
    path.write_text("".join([*lines[: steps[step - 1] + 1], *end]))


@pytest.mark.parametrize(
    ("hang", "code"),
    [
        (SyntheticHang(step=12), 1),
        (SyntheticHang(step=12, killed=(2,)), 1),
        (SyntheticHang(step=1, closed=False), 1),
        (SyntheticHang(step=12, went_on_after_s=42), 0),
    ],
    ids=["lasts", "killed", "in the first step", "went on"],
)
def test_the_first_line_is_the_sentence(tmp_path: Path, hang: SyntheticHang, code: int) -> None:
    """Once, whoever has it; of ranks that could not write, how far they came."""
    record = write_hung_job(JOB, hang, tmp_path)
    result = call(tmp_path)
    assert result.exit_code == code
    assert result.output.splitlines()[0] == record.message
    assert result.output.count(record.message) == 1
    assert ("last whole step: 11 of synthetic" in result.output) == bool(hang.killed)
    assert "train.py" not in result.output


def test_dumps_of_this_run_are_named(tmp_path: Path) -> None:
    """Where the tracers were to leave them; not one of a run before, nor of another hang."""
    record = write_hung_job(JOB, SyntheticHang(step=12), tmp_path)
    folder = record_path(tmp_path, 0).parent
    for name, at in (("hang000-rank00000", 1), ("hang000-rank00001", -1), ("hang001-rank0", 1)):
        path = folder / f"{name}.txt"
        path.touch()
        os.utime(path, ns=(0, record.since_wall_ns + at * 10**9))
    output = call(tmp_path, "--stacks").output
    assert [line.split() for line in output.splitlines() if "dump" in line] == [
        ["dump", str(folder / "hang000-rank00000.txt")]
    ]
    assert "dump" not in call(tmp_path).output


def test_json_has_what_the_tracer_returns(tmp_path: Path) -> None:
    record = write_hung_job(JOB, SyntheticHang(step=12, killed=(2,)), tmp_path)
    result = call(tmp_path, "--json")
    content = json.loads(result.output)
    (hang,) = content["hangs"]
    assert result.exit_code == 1
    for name in ("kind", "model", "hook", "step", "bucket", "since_ns", "since_wall_ns", "message"):
        assert hang[name] == getattr(record, name)
    assert (hang["ranks"], hang["waiting"], hang["recorded_by"]) == ([2], [0, 1, 3], [0, 1, 3])
    assert (hang["ended"], hang["ended_after_ns"]) == (False, None)
    assert hang["fix"].startswith("look at the line")
    assert [stacks["rank"] for stacks in hang["stacks"]] == [0, 1, 2, 3]
    assert [end["closed"] for end in content["ranks"]] == [True, True, False, True]


@pytest.mark.parametrize(
    ("ends", "apart", "first"),
    [({}, "", None), ({0: 10, 1: 10, 2: 9, 3: None}, "apart", 2), ({1: 19}, "", 1)],
    ids=["none", "stopped apart", "closed apart"],
)
def test_without_a_hang_it_is_told_how_far_ranks_came(
    tmp_path: Path, ends: dict[int, int | None], apart: str, first: int | None
) -> None:
    """The furthest behind first; ranks that ended in order may have made fewer steps."""
    write_job(JOB, tmp_path)
    for rank, step in ends.items():
        if step is None:
            record_path(tmp_path, rank).unlink()
        else:
            end_after(tmp_path, rank, step, closed=not apart)
    result = call(tmp_path)
    said, *others = result.output.splitlines()
    but = ", but its ranks' files end apart" if apart else ""
    assert (result.exit_code, said) == (3 if apart else 0, f"no hang is recorded in this run{but}")
    assert len(others) == (4 if ends else 0)
    if first is not None:
        assert others[0].startswith(f" rank {first} last whole step: {ends[first]} of synthetic")
    if apart:
        assert "killed, or it still runs" in others[0]
        assert others[3].startswith(" - rank 3: no record file; the run has 4 ranks")
    assert json.loads(call(tmp_path, "--json").output)["hangs"] == []


def test_the_docs_show_what_it_prints(tmp_path: Path) -> None:
    write_hung_job(SyntheticJob(steps=130), SyntheticHang(step=120, killed=(2,)), tmp_path)
    blocks = Page(REPOSITORY / "docs" / "hangs.md").blocks
    shown = [block.text for block in blocks if block.text.startswith("bucket 5 of step 120")]
    assert [text.strip() for text in shown] == [call(tmp_path).output.strip()]


(RECORD,) = SyntheticHang(step=120).records(SyntheticJob(), 5_000_000_000, rank=0)
HANG = Hang(
    record=RECORD, start=RECORD.since_ns, end=None, went_on=False, outcome="it lasts",
    ranks=(0, 1, 3),
)  # fmt: skip


def rows(hang: Hang, *ends: RankEnd) -> dict[str, str]:
    """Return the rows below the sentence by their name, 95.4 s after the hang began."""
    return dict(hang_rows(hang, ends, RECORD.since_wall_ns + 95_400_000_000))


def test_of_a_newer_or_damaged_file_what_is_known_is_said() -> None:
    """Nobody is named, a kind of a newer hooktrace has no fix here, and any time is one."""
    unknown = replace(
        RECORD, kind="solar_flare", model="", hook="", ranks=(), waiting=(), bucket=-1, stacks=(),
        since_wall_ns=-(1 << 62),
    )  # fmt: skip
    found = rows(dataclasses.replace(HANG, record=unknown))
    assert (found["waits"], found["for"], found["where"]) == (
        "nobody known",
        "not known",
        "step 120",
    )
    assert found["since"] == "1823-11-12 00:06:21.572 UTC"
    assert "fix" not in found


def test_a_hang_that_may_last_is_told_with_how_long_it_has_by_now() -> None:
    """The sentence still says for how long it had when it was told; not of one that is over."""
    end = RankEnd(rank=0, host="host-0", last=(), closed=False)
    assert rows(HANG, end)["by now"] == "95 s, unless its processes were killed meanwhile"
    over = dataclasses.replace(HANG, end=HANG.start + 1)
    for hang, one in ((HANG, replace(end, closed=True)), (over, end), (HANG, replace(end, rank=7))):
        assert "by now" not in rows(hang, one)


def test_the_last_whole_step_counts(tmp_path: Path) -> None:
    """Not one that was cut off; of each rank with its moment; a rank without a step is apart."""
    steps = steps_of(5)
    cut = [*steps[:4], (replace(steps[4][0], complete=False), steps[4][1])]
    write_ranks(tmp_path, {0: text_of(run_of(0), steps), 1: text_of(run_of(1), cut, ended=False)})
    ends = rank_ends(run_in(tmp_path))
    at = [1_700_000_000_000_000_000 + step.done_ns - 1_000_000_000 for step, _ in steps]
    assert [(e.rank, e.host, e.last, e.closed) for e in ends] == [
        (0, "host-a", (LastStep("net", 4, at[4]),), True),
        (1, "host-a", (LastStep("net", 3, at[3]),), False),
    ]
    assert are_apart(ends)
    write_ranks(tmp_path, {1: text_of(run_of(1), [], ended=False)})
    assert are_apart(rank_ends(run_in(tmp_path)))
