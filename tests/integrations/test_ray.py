"""Ray Train itself, in the frameworks' environment."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from hooktrace.records.reader import read_parts
from tests.distributed.harness import REPOSITORY
from tests.docs.pages import Page
from tests.integrations.frameworks import ALONE, check_namespaces, needs_frameworks, run
from tests.integrations.rows import Framework, shows

pytestmark = [pytest.mark.slow, needs_frameworks]
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


@shows(RAY, "metrics beside Ray's own, in the Prometheus of its dashboard")
def test_the_prometheus_of_rays_dashboard(tmp_path: Path) -> None:
    """With the page's lines in the file that Ray writes, it scrapes Ray and both ranks."""
    if shutil.which("prometheus") is None:
        pytest.skip("no prometheus")
    check_namespaces()
    page = Page(REPOSITORY / "docs" / "frameworks.md")
    (job,) = [block.text for block in page.blocks if "file_sd_configs" in block.text]
    tmp_path.joinpath("job.yml").write_text(job)
    said = run(
        [SCRIPTS / "ray_prometheus.py", tmp_path, tmp_path / "job.yml"], tmp_path, within=ALONE
    )
    found = json.loads(said.splitlines()[-1])
    assert {series["rank"] for series in found["ours"]} == {"0", "1"}
    assert {series["job"] for series in found["targets"]} == {"hooktrace", "ray"}
    assert found["Ray's"] == [{}]


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
