"""``hooktrace run`` on scripts that shard their models: traced without a line, the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from hooktrace.records import StepRecord
from hooktrace.records.codec import decode_line
from tests.distributed.test_run import RUN, TORCHRUN, call, lines_of_hooktrace

pytestmark = pytest.mark.slow

SCRIPT = str(Path(__file__).with_name("sharded_script.py"))
RANKS = [*TORCHRUN, "--nproc-per-node", "2"]


class Done(NamedTuple):
    """What a traced script said, and the folder of its records."""

    said: str
    records: Path

    def steps(self, rank: int = 0) -> dict[str, list[StepRecord]]:
        """Return a rank's steps by model."""
        found: dict[str, list[StepRecord]] = {}
        for file in (self.records / "plugins" / "hooktrace").glob(f"rank{rank:05}*.jsonl"):
            for line in file.read_bytes().splitlines():
                record = decode_line(line)
                if isinstance(record, StepRecord):
                    found.setdefault(record.model, []).append(record)
        return found


def run(how: str, folder: Path, *, asks: bool = True) -> Done:
    """Run the script without hooktrace and with it; its bits and exit code are the same.

    ``asks``: for record files; else they go where ``hooktrace run`` chooses.
    """
    code, said = call([*RANKS, SCRIPT, "plain", how], folder)
    records = folder / "records"
    asked = {"HOOKTRACE_RECORD_DIR": str(records)} if asks else {}
    traced_code, traced = call([*RANKS, *RUN, SCRIPT, "traced", how], folder, **asked)
    assert traced_code == code, said + traced
    assert ("exitcode  : 7" in traced) == ("exitcode  : 7" in said)
    assert (folder / "traced").read_bytes() == (folder / "plain").read_bytes()
    return Done(traced, records if asks else next((folder / "runs").iterdir(), folder))


def test_a_sharded_model_is_traced(tmp_path: Path) -> None:
    """From its first pass on, which is an evaluation and no step; all units, both ranks."""
    done = run("exits", tmp_path)
    first, last = lines_of_hooktrace(done.said)
    assert first.startswith("hooktrace: Net: fully_shard, medians of ")
    assert last.endswith(f"hooktrace report {done.records}")
    for rank in range(2):
        (steps,) = done.steps(rank).values()
        assert [step.step for step in steps] == list(range(6))
        assert all(step.sharded and step.complete for step in steps)
        # Of three layers and the root, which kept what the evaluation had gathered.
        assert [step.bucket_count for step in steps] == [10, *[11] * 5]


def test_models_are_kept_apart_and_units_together(tmp_path: Path) -> None:
    """Two by turns, one of them in a wrapper; and one of which only the layers are sharded."""
    done = run("several", tmp_path)
    steps = done.steps()
    assert {name: len(of_model) for name, of_model in steps.items()} == {
        "Net": 6, "Net#2": 6, "Net#3": 6,
    }  # fmt: skip
    # Each unit is its own root, which keeps what was gathered until it is used in backward.
    assert [step.bucket_count for step in steps["Net#3"]] == [3, *[6] * 5]
    assert all(step.complete for of_model in steps.values() for step in of_model)


def test_compiled_models_are_traced(tmp_path: Path) -> None:
    """As a whole, and layer by layer: traced from inside of a call that compiles."""
    steps = run("compiles", tmp_path).steps()
    assert {name: len(of_model) for name, of_model in steps.items()} == {"Net": 6, "Net#2": 6}
    assert all(step.complete for of_model in steps.values() for step in of_model)


def test_a_model_that_the_script_traces_is_left_to_it(tmp_path: Path) -> None:
    """Only the other one is traced besides; the tracer that its call makes has a folder too."""
    done = run("traces_itself", tmp_path, asks=False)
    first, second, *_ = lines_of_hooktrace(done.said)
    assert first.startswith("hooktrace: own: fully_shard, medians of 5 steps")
    assert second.startswith("hooktrace: Net: fully_shard, medians of 5 steps")
    assert [set(done.steps(rank)) for rank in range(2)] == [{"own", "Net"}] * 2


def test_the_older_fsdp_is_not_traced_and_that_is_said(tmp_path: Path) -> None:
    """Once, by rank 0, when a model is made; and it is the reason at the end."""
    said = run("of_fsdp1", tmp_path).said
    assert said.count("FSDP1 (FullyShardedDataParallel)") == 1
    assert lines_of_hooktrace(said) == [
        "hooktrace: no DistributedDataParallel model was seen, so there is nothing to show",
        "hooktrace: a model is sharded by FSDP1, which is not traced; fully_shard's models are",
    ]


def test_what_fails_in_hooktrace_is_one_line(tmp_path: Path) -> None:
    """On each rank; training goes on."""
    said = run("breaks", tmp_path).said
    assert said.count("a sharded model is not traced: ") == 2
    assert "Traceback" not in said.partition("exitcode")[0]
