"""``hooktrace run`` on scripts that shard their models: traced without a line, the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from hooktrace.records import StepRecord
from hooktrace.records.codec import decode_line
from tests.distributed.programs import TORCHRUN, call
from tests.distributed.test_run import RUN, lines_of_hooktrace

pytestmark = pytest.mark.slow

SCRIPT = str(Path(__file__).with_name("sharded_script.py"))
RANKS = [*TORCHRUN, "--nproc-per-node", "2"]
HOWS = ("exits", "several", "compiles", "of_fsdp1", "breaks", "traces_itself")
"""Without hooktrace the same ranks do all of these; the last one imports it itself."""


class Done(NamedTuple):
    """What a script said, and a folder: of its records if it was traced, else of its bits."""

    code: int
    said: str
    folder: Path

    def steps(self, rank: int = 0) -> dict[str, list[StepRecord]]:
        found: dict[str, list[StepRecord]] = {}
        for file in (self.folder / "plugins" / "hooktrace").glob(f"rank{rank:05}*.jsonl"):
            for line in file.read_bytes().splitlines():
                record = decode_line(line)
                if isinstance(record, StepRecord):
                    found.setdefault(record.model, []).append(record)
        return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("plain")
    code, said = call([*RANKS, SCRIPT, str(folder), *HOWS], folder)
    assert sorted(file.name for file in folder.iterdir()) == sorted(HOWS), said
    return Done(code, said, folder)


def traced(folder: Path, plain: Done, *hows: str, asks: bool = True) -> Done:
    """Run the script with hooktrace; bits and exit code are as without.

    ``asks``: for record files; else they go where ``hooktrace run`` chooses.
    """
    records = folder / "records"
    asked = {"HOOKTRACE_RECORD_DIR": str(records)} if asks else {}
    code, said = call([*RANKS, *RUN, SCRIPT, "bits", *hows], folder, **asked)
    assert code == (plain.code if "exits" in hows else 0), said
    assert ("exitcode  : 7" in said) == ("exits" in hows), said
    for how in hows:
        assert (folder / "bits" / how).read_bytes() == (plain.folder / how).read_bytes()
    return Done(code, said, records if asks else next((folder / "runs").iterdir(), folder))


def test_a_sharded_model_is_traced(tmp_path: Path, plain: Done) -> None:
    """From its first pass on, which is an evaluation and no step; all units, both ranks."""
    assert "exitcode  : 7" in plain.said, plain.said
    done = traced(tmp_path, plain, "exits")
    first, last = lines_of_hooktrace(done.said)
    assert first.startswith("hooktrace: Net: fully_shard, medians of ")
    assert last.endswith(f"hooktrace report {done.folder}")
    for rank in range(2):
        (steps,) = done.steps(rank).values()
        assert [step.step for step in steps] == list(range(6))
        assert all(step.sharded and step.complete for step in steps)
        # Of three layers and the root, which kept what the evaluation had gathered.
        assert [step.bucket_count for step in steps] == [10, *[11] * 5]


@pytest.mark.long
def test_many_models_of_one_script(tmp_path: Path, plain: Done) -> None:
    """Each is traced by itself, also from inside of a call that compiles; one that fails is not.

    Two by turns, one of them in a wrapper; one of which only the layers are sharded; one that is
    compiled as a whole, one layer by layer; and one whose tracing fails: a line on each rank.
    """
    done = traced(tmp_path, plain, "several", "compiles", "breaks")
    steps = done.steps()
    names = ["Net", "Net#2", "Net#3", "Net#4", "Net#5"]
    assert {name: len(of_model) for name, of_model in steps.items()} == dict.fromkeys(names, 6)
    # Each unit is its own root, which keeps what was gathered until it is used in backward.
    assert [step.bucket_count for step in steps["Net#3"]] == [3, *[6] * 5]
    assert all(step.complete for of_model in steps.values() for step in of_model)
    assert done.said.count("a sharded model is not traced: ") == 2
    assert "Traceback" not in done.said


def test_a_model_that_the_script_traces_is_left_to_it(tmp_path: Path, plain: Done) -> None:
    """Only the other one is traced besides; the tracer that its call makes has a folder too."""
    done = traced(tmp_path, plain, "traces_itself", asks=False)
    first, second, *_ = lines_of_hooktrace(done.said)
    assert first.startswith("hooktrace: own: fully_shard, medians of 4 steps")
    assert second.startswith("hooktrace: Net: fully_shard, medians of 4 steps")
    assert [set(done.steps(rank)) for rank in range(2)] == [{"own", "Net"}] * 2


def test_the_older_fsdp_is_not_traced_and_that_is_said(tmp_path: Path, plain: Done) -> None:
    """Once, by rank 0, when a model is made; and it is the reason at the end."""
    said = traced(tmp_path, plain, "of_fsdp1").said
    assert said.count("FSDP1 (FullyShardedDataParallel)") == 1
    assert lines_of_hooktrace(said) == [
        "hooktrace: no DistributedDataParallel model was seen, so there is nothing to show",
        "hooktrace: a model is sharded by FSDP1, which is not traced; fully_shard's models are",
    ]
