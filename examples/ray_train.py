"""Ray Train, traced: ``python examples/ray_train.py``.

Each worker reports how long a step waits for gradients, and what its hook loses.
"""

import tempfile

import ray
import ray.train
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model

import hooktrace
from hooktrace.integrations import log_to


def train() -> None:
    """Train on one worker; all workers report together."""
    layers = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(6)))
    model = prepare_model(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    latest: dict[str, float] = {}
    tracer = hooktrace.Tracer(
        [log_to(latest.update, every=10, all_ranks=True)], error_every=10, error_all_buckets=True
    )
    hooktrace.instrument(model, hooktrace.hooks.bf16_compress_hook, tracer=tracer)
    for step in range(1, 61):
        optimizer.zero_grad()
        model(torch.randn(32, 256)).square().mean().backward()
        optimizer.step()
        if step % 30 == 0:
            tracer.flush()
            ray.train.report({"training_step": step, **latest})
    tracer.close()
    if ray.train.get_context().get_world_rank() == 0:
        for name, value in sorted(latest.items()):
            print(f"{name} {value:.4g}")


if __name__ == "__main__":
    if not ray.is_initialized():
        ray.init(num_cpus=2)
    with tempfile.TemporaryDirectory() as folder:
        trainer = TorchTrainer(
            train,
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=folder),
        )
        trainer.fit()
    ray.shutdown()
