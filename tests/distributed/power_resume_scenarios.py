"""What the ranks do in ``test_powersgd.py``: PowerSGD saved in the middle of a run and loaded."""

from __future__ import annotations

import io
import itertools
import pickle
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hooktrace import hooks
from tests.distributed.comparison import (
    Given,
    Gradients,
    Hook,
    Run,
    drawn,
    equal,
    largest,
    tolerance,
)
from tests.distributed.models import backward, make_model
from tests.distributed.power_pairs import Case, counters


class Training:
    """A real model, its optimizer and its hook's state, which can be saved and loaded."""

    def __init__(
        self, hook: Hook, state: Any, saved: dict[str, Any] | None, **options: Any
    ) -> None:
        module = make_model(layers=6, seed=3 if saved else 0)
        self.state = saved["state"] if saved and state is None else state
        self.step = saved["step"] if saved else 0
        if saved:
            module.load_state_dict(saved["model"])
        self.ddp = DistributedDataParallel(module, bucket_cap_mb=0.005, **options)
        self.ddp.register_comm_hook(self.state, hook)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=1e-4, momentum=0.9)
        if saved:
            self.optimizer.load_state_dict(saved["optimizer"])

    def until(self, step: int, rank: int) -> None:
        """Train up to this step."""
        while self.step < step:
            self.optimizer.zero_grad()
            backward(self.ddp, rank, self.step)
            self.optimizer.step()
            self.step += 1

    def saved(self) -> dict[str, Any]:
        """Return what was saved and loaded again."""
        file = io.BytesIO()
        model, optimizer = self.ddp.module.state_dict(), self.optimizer.state_dict()
        kept = {"state": self.state, "step": self.step, "model": model, "optimizer": optimizer}
        kept["plain"] = self.state.state_dict()
        torch.save(kept, file)
        file.seek(0)
        loaded: dict[str, Any] = torch.load(file, weights_only=False)
        return loaded


def resume(rank: int) -> dict[str, bool | str]:
    """Stop in the middle and go on from a file; return whether weights and memory are the same.

    Only where they can be: DDP begins again with its first buckets, which are the old ones where it
    never rebuilds them.  A random Q and the batched hook's square depend on the buckets; what
    powerSGD_hook remembers for warm start does not.
    """
    facts: dict[str, bool | str] = {}
    modes: dict[str, dict[str, Any]] = {
        "rebuilt buckets": {},
        "static_graph": {"static_graph": True},
        "find_unused_parameters": {"find_unused_parameters": True},
    }
    cases = {
        "powerSGD": (hooks.powerSGD_hook, Case()),
        "powerSGD, state_dict": (hooks.powerSGD_hook, Case()),
        "powerSGD, stacked": (hooks.powerSGD_hook, Case(4, batched=True, ratio=0.5)),
        "powerSGD, cold": (hooks.powerSGD_hook, Case(warm=False)),
        "batched": (hooks.batched_powerSGD_hook, Case()),
        "batched, state_dict": (hooks.batched_powerSGD_hook, Case()),
    }
    for (mode, options), (name, (hook, case)) in itertools.product(modes.items(), cases.items()):
        whole = Training(hook, hooks.PowerSGDState(**case.options()), None, **options)
        whole.until(10, rank)
        saved = whole.saved()
        whole.until(20, rank)
        state = None
        if "state_dict" in name:
            state = hooks.PowerSGDState(**case.options())
            state.load_state_dict(saved["plain"])
        try:
            resumed = Training(hook, state, saved, **options)
            resumed.until(20, rank)
        except Exception as error:
            facts[f"{name}, {mode}"] = str(error).splitlines()[0]
            continue
        if mode == "find_unused_parameters" or (hook is hooks.powerSGD_hook and case.warm):
            facts[f"{name}, {mode}"] = (
                equal(list(resumed.ddp.parameters()), list(whole.ddp.parameters()))
                and counters(resumed.state)[:2] == counters(whole.state)[:2]
            )
        else:
            facts[f"{name}, {mode}"] = resumed.state.iter == whole.state.iter and all(
                p.isfinite().all() for p in resumed.ddp.parameters()
            )
    return facts


def residuals_after_resume(rank: int) -> dict[str, float]:
    """Return by how much error feedback loses or invents gradients when a run is resumed.

    What was delivered and what remains as residual must be what was given and what remained before,
    on the average of the ranks.  All parameters are in one bucket, which DDP rebuilds in another
    order: its length does not tell.
    """
    facts = {}
    for name in ("powerSGD_hook", "batched_powerSGD_hook"):
        hook = getattr(hooks, name)
        shapes = ((24, 24), (24,), (16, 16), (16,))
        options: dict[str, Any] = {"bucket_cap_mb": 25}
        before = Run(
            hook, hooks.PowerSGDState(**Case(ratio=0.5).options()), module=Given(shapes), **options
        )
        for step in range(8):
            before.step(drawn(rank, step, shapes))
        state = pickle.loads(pickle.dumps(before.state))
        balance = _residuals(before)
        after = Run(hook, state, module=Given(shapes), **options)
        for step in range(8, 12):
            given = drawn(rank, step, shapes)
            delivered = after.step(given)
            balance = [b + g - d for b, g, d in zip(balance, given, delivered, strict=True)]
        lost = [b - r for b, r in zip(balance, _residuals(after), strict=True)]
        for tensor in lost:
            dist.all_reduce(tensor)
        facts[name] = largest(lost) / tolerance(torch.float32, 4)
    return facts


def _residuals(run: Run) -> Gradients:
    """Return the residual of a model's only bucket, by parameter."""
    (call,) = run.log[-1].values()
    flat = run.state.error_dict[0][: call.gradients.numel()]
    parts = flat.split([p.numel() for p in call.parameters])
    found = {id(p): part.view(p.shape) for p, part in zip(call.parameters, parts, strict=True)}
    return [found[id(p)].clone() for p in run.ddp.parameters()]
