"""``hooktrace run`` on scripts that shard their models: traced without a line, the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooktrace.records import StepRecord
from hooktrace.records.codec import decode_line
from tests.distributed.programs import TORCHRUN, call
from tests.distributed.test_run import RUN, lines_of_hooktrace

pytestmark = pytest.mark.slow

SCRIPT = str(Path(__file__).with_name("sharded_script.py"))
RANKS = [*TORCHRUN, "--nproc-per-node", "2"]


def steps_in(folder: Path, rank: int) -> dict[str, list[StepRecord]]:
    found: dict[str, list[StepRecord]] = {}
    for file in (folder / "plugins" / "hooktrace").glob(f"rank{rank:05}*.jsonl"):
        for line in file.read_bytes().splitlines():
            record = decode_line(line)
            if isinstance(record, StepRecord):
                found.setdefault(record.model, []).append(record)
    return found


def test_each_sharded_model_is_traced(tmp_path: Path) -> None:
    """Two by turns, one of them wrapped; one without a root; one compiled: from evaluation on."""
    hows, records = ("exits", "compiles"), tmp_path / "records"
    code, said = call([*RANKS, SCRIPT, "plain", *hows], tmp_path)
    assert "exitcode  : 7" in said, said
    traced = [*RANKS, *RUN, SCRIPT, "traced", *hows]
    traced_code, said = call(traced, tmp_path, HOOKTRACE_RECORD_DIR=str(records))
    assert (traced_code, "exitcode  : 7" in said) == (code, True), said
    for how in hows:
        traced_bits = (tmp_path / "traced" / how).read_bytes()
        assert traced_bits == (tmp_path / "plain" / how).read_bytes(), how
    first, *_, last = lines_of_hooktrace(said)
    assert first.startswith("hooktrace: Net: fully_shard, medians of ")
    assert last.endswith(f"hooktrace report {records}")
    assert "Traceback" not in said.partition("exitcode")[0]
    for rank in range(2):
        steps = steps_in(records, rank)
        numbers = {name: [step.step for step in own] for name, own in steps.items()}
        assert numbers == {name: [*range(6)] for name in ("Net", "Net#2", "Net#3", "Net#4")}
        assert all(step.sharded and step.complete for own in steps.values() for step in own)
        # Of three layers and the root, which kept what the evaluation had gathered.
        assert [step.bucket_count for step in steps["Net#4"]] == [10, *[11] * 5]
        # Each unit is its own root, which keeps what was gathered until it is used in backward.
        assert [step.bucket_count for step in steps["Net#3"]] == [3, *[6] * 5]
