"""Ray Train itself, in the frameworks' environment."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from hooktrace.records.reader import read_parts
from tests.distributed.harness import REPOSITORY
from tests.integrations.frameworks import needs_frameworks, run
from tests.integrations.rows import Framework, shows

pytestmark = [pytest.mark.slow, pytest.mark.long, needs_frameworks]
RAY = Framework("Ray Train", "`instrument(prepare_model(model), hook)`", "ray")
SCRIPTS = REPOSITORY / "tests" / "integrations" / "scripts"


class Ran(NamedTuple):
    """What scripts on one Ray have said, and the folder of their records."""

    said: str
    folder: Path


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The example, and a script that shards its models."""
    folder = tmp_path_factory.mktemp("ray")
    scripts = (REPOSITORY / "examples" / "ray_train.py", SCRIPTS / "ray_sharded.py")
    return Ran(run([SCRIPTS / "ray_on_loopback.py", folder, *scripts], folder), folder)


@shows(RAY, "workers", "numbers by `ray.train.report`")
def test_the_example(ran: Ran) -> None:
    """Its workers report how long they wait for gradients, and what the hook loses."""
    (exposed,) = re.findall(r"hooktrace/exposed_seconds (\S+)", ran.said)
    (error,) = re.findall(r"hooktrace/error (\S+)", ran.said)
    assert 0 <= float(exposed) < 60
    assert 0 < float(error) < 0.01


@shows(RAY, "`fully_shard` in the function, by `fsdp.trace`")
def test_a_model_that_the_function_shards(ran: Ran) -> None:
    """The same bits; what is between steps is none; FSDP1 Ray itself refuses."""
    (facts,) = (json.loads(found) for found in re.findall(r"\{\"FSDP1.*\}", ran.said))
    assert facts["same bits"]
    page = REPOSITORY.joinpath("docs", "frameworks.md").read_text()
    assert facts["FSDP1"].partition(". ")[0] in " ".join(page.split())
    files = sorted((ran.folder / "plugins" / "hooktrace").glob("*.jsonl"))
    assert [file.name for file in files] == ["rank00000.jsonl", "rank00001.jsonl"]
    for file in files:
        found = read_parts([file])
        steps = [(step.model, step.hook) for step in found.steps if step.complete]
        assert steps == [("traced", "fully_shard")] * 6 + [("bf16", "bf16_reduce_scatter")] * 6
        assert found.anomalies == []
