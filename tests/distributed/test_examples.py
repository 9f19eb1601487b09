"""The examples as a user runs them: what they print, and the files that they leave."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hooktrace.records.reader import read_parts
from tests.distributed.harness import REPOSITORY
from tests.distributed.programs import TORCHRUN, finished
from tests.versions import KEEPS_SHARDS

pytestmark = [pytest.mark.slow, pytest.mark.long]

T = r"[\d.]+"


def printed_by(example: str, folder: Path, *options: str, ranks: int = 2) -> str:
    """Return what an example prints; it ends well and says nothing else."""
    script = str(REPOSITORY / "examples" / example)
    command = [*TORCHRUN, "--nproc-per-node", str(ranks), script, *options]
    code, printed, errors = finished(command, folder, HOOKTRACE_RECORD_DIR=str(folder))
    assert (code, errors) == (0, ""), errors
    return printed


def test_the_smallest_one_prints_its_summary(tmp_path: Path) -> None:
    """A line for the model, then one a bucket; of 50 steps the first one does not count."""
    model, *buckets = printed_by("minimal.py", tmp_path).splitlines()
    of = rf"model0: fp16_compress_hook, medians of 49 steps of {T} ms, {T} ms \({T} %\) exposed"
    assert re.fullmatch(of, model)
    assert len(buckets) == 2
    for index, line in enumerate(buckets):
        stages = rf"{T} ms: compress {T}, (queue {T}, )?wire {T}, decompress {T}"
        assert re.fullmatch(rf"  bucket {index}: 4.20 MB, 2.10 on the wire, {stages}", line), line


@pytest.mark.skipif(not KEEPS_SHARDS, reason="this torch keeps FSDP's groups elsewhere")
def test_a_sharded_one_prints_a_line_a_unit(tmp_path: Path) -> None:
    """A layer is gathered in forward and in backward; of gradients a quarter is sent."""
    head, *units = printed_by("fsdp.py", tmp_path, "--eight-bit").splitlines()
    assert re.match(r"model0: eight_bit_reduce_scatter\(.*\), medians of 2[78] steps ", head)
    (reduced,) = [u for u in units if u.startswith("  unit layers.2 reduce-scatter (backward): ")]
    assert "0.79 MB, 0.20 on the wire, " in reduced
    assert len(units) == 2 + 3 * 4
    files = sorted(tmp_path.rglob("*.jsonl"))
    assert [file.name for file in files] == ["rank00000.jsonl", "rank00001.jsonl"]
    for file in files:
        found = read_parts([file])
        assert found.closed
        assert [step.step for step in found.steps] == list(range(30))
        assert all(step.sharded and step.complete for step in found.steps)


def test_that_of_local_sgd_averages_to_equal_replicas(tmp_path: Path) -> None:
    """Its own averaging, on four ranks."""
    printed = printed_by("local_sgd.py", tmp_path, ranks=4)
    assert re.search(r"model0: post_localSGD_hook, medians of 50 steps", printed)
    apart = r"^replicas apart by (\S+) before the last averaging, (\S+) after"
    (found,) = re.findall(apart, printed, re.M)
    assert float(found[0]) > 0
    assert float(found[1]) == 0
