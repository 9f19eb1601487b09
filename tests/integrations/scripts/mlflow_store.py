"""A traced model whose numbers go to MLflow's file store: ``mlflow_store.py FOLDER``."""

import json
import os
import sys

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"

import mlflow
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace.integrations import log_to

mlflow.set_tracking_uri(f"file://{sys.argv[1]}/mlruns")
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=0, world_size=1)
ddp = DistributedDataParallel(torch.nn.Linear(8, 8))
with mlflow.start_run() as run:

    def log(numbers: dict[str, float]) -> None:
        # On another thread MLflow knows of no active run.
        step = int(numbers["hooktrace/step"])
        mlflow.log_metrics(numbers, step=step, run_id=run.info.run_id)

    with hooktrace.Tracer([log_to(log, every=10)], error_every=0) as tracer:
        hooktrace.instrument(ddp, tracer=tracer)
        for _ in range(35):
            ddp(torch.ones(2, 8)).sum().backward()
client = mlflow.MlflowClient()
history = client.get_metric_history(run.info.run_id, "hooktrace/exposed_seconds")
metrics = sorted(client.get_run(run.info.run_id).data.metrics)
print(json.dumps({"steps": [metric.step for metric in history], "metrics": metrics}))
del ddp
hooktrace.shutdown()
