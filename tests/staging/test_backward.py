"""The end of a backward pass, against autograd's own engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch.amp import GradScaler
from torch.utils.checkpoint import checkpoint

from hooktrace.staging.backward import (
    current_pass,
    hear_of_scalers,
    is_checkpointed,
    is_loss_scaled,
    watch,
    watch_after,
)


def watching(name: str, said: list[str]) -> bool:
    """Watch the pass; it is said what is told."""
    return watch(lambda: said.append(f"{name} ended"), lambda: said.append(f"{name} failed"))


def do(work: Callable[[], object], gradient: torch.Tensor) -> None:
    """Work in a backward pass."""
    work()


@torch.enable_grad()  # also inside of a pass
def chain(*works: Callable[[], object]) -> torch.Tensor:
    """Return a tensor whose backward pass does these works, one after another."""
    at = torch.ones(1, requires_grad=True)
    for work in reversed(works):
        at = at * 2
        at.register_hook(partial(do, work))
    return at


def later(what: str, said: list[str]) -> None:
    """Queue what DDP queues: its wait for the buckets."""
    torch.autograd.Variable._execution_engine.queue_callback(lambda: said.append(what))


def test_all_calls_are_told_before_anything_waits() -> None:
    """Of two models in one pass: DDP queues its waits after the hooks that watch."""
    said: list[str] = []
    chain(
        lambda: watching("a", said),
        lambda: later("a waits", said),
        lambda: watching("b", said),
        lambda: later("b waits", said),
        lambda: said.append("last work"),
    ).backward()
    assert said == ["last work", "a ended", "b ended", "a waits", "b waits"]


def test_outside_of_a_pass_nothing_is_told() -> None:
    """As for the calls that DDP makes under join()."""
    said: list[str] = []
    assert not watching("a", said)
    chain(lambda: None).backward()
    assert said == []


def test_a_pass_that_raises_has_no_end() -> None:
    """Its calls are told so at once, and the next pass is one of its own."""
    said: list[str] = []

    def fail() -> None:
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        chain(
            lambda: watching("a", said),
            lambda: watch_after(lambda *, failed: said.append(f"after, {failed=}")),
            fail,
        ).backward()
    assert said == ["a failed", "after, failed=True"]
    chain(lambda: watching("b", said)).backward()
    assert said[2:] == ["b ended"]


def test_a_pass_inside_another_has_its_own_end() -> None:
    """Re-entrant checkpoints run hooks in one, at whose end DDP waits."""
    said: list[str] = []
    inner = lambda: chain(lambda: watching("inner", said)).backward()  # noqa: E731
    chain(lambda: watching("outer", said), inner, lambda: said.append("work")).backward()
    assert said == ["inner ended", "work", "outer ended"]


def test_hooks_in_a_callback_are_told_too() -> None:
    """Under a static graph all hooks of the first pass run at its end."""
    said: list[str] = []

    def at_the_end() -> None:
        watching("b", said)

    engine = torch.autograd.Variable._execution_engine
    chain(lambda: watching("a", said), lambda: engine.queue_callback(at_the_end)).backward()
    assert said == ["a ended", "b ended"]


def test_after_a_pass_is_after_callbacks_that_were_queued_later() -> None:
    """FSDP's roots each queue one, in which they reduce their last gradients."""
    said: list[str] = []
    after = lambda: watch_after(lambda *, failed: said.append(f"after, {failed=}"))  # noqa: E731
    chain(after, lambda: later("root reduces", said)).backward()
    assert said == ["root reduces", "after, failed=False"]


def test_what_a_reentrant_checkpoint_calls() -> None:
    """Without gradients at first, and again in the backward pass, which has a number."""
    seen: list[tuple[bool, bool]] = []

    def block(at: torch.Tensor) -> torch.Tensor:
        seen.append((is_checkpointed(), current_pass() != -1))
        return at * 2

    at = torch.ones(1, requires_grad=True)
    checkpoint(block, at, use_reentrant=True).backward()
    assert seen == [(True, False), (False, True)]
    block(at)
    assert seen[2:] == [(False, False)]


def test_from_scaling_to_the_update() -> None:
    """However often it is asked for; results are the scaler's own."""
    for _ in range(2):
        hear_of_scalers()
    scaler, off = GradScaler("cpu", init_scale=8.0), GradScaler("cpu", enabled=False)
    loss = torch.tensor(2.0, requires_grad=True)
    assert not is_loss_scaled()
    assert off.scale(loss) is loss
    assert not is_loss_scaled()
    assert scaler.scale(loss).item() == 16.0
    assert is_loss_scaled()
    off.scale(loss)
    assert is_loss_scaled()
    optimizer = torch.optim.SGD([loss], lr=1.0)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    assert is_loss_scaled()
    scaler.update()
    assert not is_loss_scaled()
    assert loss.item() == 1.0
