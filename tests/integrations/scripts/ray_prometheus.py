"""Ray's own Prometheus configuration with one job added: ``ray_prometheus.py FOLDER JOB_FILE``.

Ray's dashboard --> prometheus.yml, with JOB_FILE at its end --> Prometheus --> what it has found

JOB_FILE's folder of targets, ``/shared/targets``, is FOLDER/targets here.
"""

import json
import sys
import tempfile
from pathlib import Path

import ray
import ray.train
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model

import hooktrace
from hooktrace.exporters import PrometheusExporter
from tests.exporters.processes import Prometheus, running, until
from tests.ports import free_port

FOLDER, JOB_FILE = map(Path, sys.argv[1:])
TARGETS = FOLDER / "targets"
ASKED = {
    "ours": "count by (rank) (hooktrace_steps_total) and on () count(hooktrace_steps_total) == 2",
    "Ray's": 'count(ray_node_cpu_count{job="ray"})',
    # A scrape may be held up and fail: of both jobs at once.
    "targets": "min by (job) (up) > 0 and on () count(min by (job) (up) > 0) == 2",
}


def train() -> None:
    """Train until Prometheus has seen it."""
    model = prepare_model(torch.nn.Linear(64, 64))
    with hooktrace.Tracer([PrometheusExporter(0, file_sd=TARGETS)]) as tracer:
        hooktrace.instrument(model, tracer=tracer)
        while True:
            model(torch.randn(8, 64)).sum().backward()
            seen = torch.tensor(float((FOLDER / "seen").exists()))
            torch.distributed.broadcast(seen, 0)
            if seen:
                break


@ray.remote(num_cpus=0)
def look(configuration: str) -> dict[str, list[dict[str, str]]]:
    """Run Prometheus beside the job, and return the labels of what it finds."""
    port, log = free_port(), FOLDER / "prometheus.log"
    command = ["prometheus", f"--config.file={configuration}", f"--storage.tsdb.path={FOLDER}/data"]
    try:
        with running([*command, f"--web.listen-address=127.0.0.1:{port}"], log):
            ask = Prometheus(port)
            return {
                name: [series["metric"] for series in until(lambda q=query: ask(q), bool, log, 90)]
                for name, query in ASKED.items()
            }
    finally:
        (FOLDER / "seen").touch()


def main() -> None:
    started = ray.init(
        "local", num_cpus=2, include_dashboard=True, _node_ip_address="127.0.0.1", dashboard_port=0
    )
    session = Path(started.address_info["session_dir"])
    generated = session / "metrics" / "prometheus" / "prometheus.yml"
    until(generated.exists, bool, session / "logs" / "dashboard.log")
    job = JOB_FILE.read_text().replace("/shared/targets", str(TARGETS))
    # Every ten seconds would make a long test.
    text = generated.read_text().replace("scrape_interval: 10s", "scrape_interval: 1s") + job
    configuration = FOLDER / "prometheus.yml"
    configuration.write_text(text)
    TARGETS.mkdir()
    found = look.remote(str(configuration))
    with tempfile.TemporaryDirectory() as folder:
        TorchTrainer(
            train, scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=folder),
        ).fit()  # fmt: skip
    print(json.dumps(ray.get(found)))
    ray.shutdown()


main()
