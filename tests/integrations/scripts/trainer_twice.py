"""A Trainer whose ``train()`` is called twice, on two gloo ranks: ``trainer_twice.py FOLDER``."""

import json
import sys

import torch
import torch.distributed as dist
from transformers import Trainer, TrainingArguments

import hooktrace
from hooktrace.integrations.transformers import trace


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.layer(x).square().mean()}


arguments = TrainingArguments(
    output_dir=sys.argv[1], use_cpu=True, per_device_train_batch_size=2, max_steps=12,
    logging_steps=6, save_strategy="no", disable_tqdm=True, report_to=[],
)  # fmt: skip
with hooktrace.Tracer(error_every=0) as tracer:
    trainer = Trainer(Net(), arguments, train_dataset=[{"x": torch.ones(8)}] * 64)
    callback = trace(trainer, tracer=tracer)
    counts = []
    for _ in range(2):
        trainer.train()
        counts.append(len(tracer.steps()))
    facts = {
        "counts": counts,
        "hook": tracer.steps()[-1].hook,
        # But for stalls, which a busy machine has.
        "anomalies": [a.kind for a in tracer.anomalies() if a.kind != "stall"],
        "losses": sum("loss" in entry for entry in trainer.state.log_history),
    }
if dist.get_rank() == 0:
    print(json.dumps(facts))
del trainer, callback
hooktrace.shutdown()
