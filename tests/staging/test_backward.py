"""The end of a backward pass, against autograd's own engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.amp import GradScaler
from torch.utils.checkpoint import checkpoint

from hooktrace.staging import backward

ENGINE: Any = torch.autograd.Variable._execution_engine
Work = Callable[[], object]


def do(work: Work, gradient: torch.Tensor) -> None:
    """Work in a backward pass."""
    work()


@torch.enable_grad()  # also inside of a pass
def chain(*works: Work) -> torch.Tensor:
    """Return a tensor whose backward pass does these works, one after another."""
    at = torch.ones(1, requires_grad=True)
    for work in reversed(works):
        at = at * 2
        at.register_hook(partial(do, work))
    return at


@pytest.fixture
def said() -> list[str]:
    """What is told, in its order."""
    return []


@pytest.fixture
def watch(said: list[str]) -> Callable[[str], Work]:
    """Return what watches the pass, and says how it ended."""

    def watching(name: str, how: Any = backward.at_pass_end) -> Work:
        return lambda: how(lambda failed: said.append(f"{name}, {failed=}"))

    return watching


def test_all_calls_are_told_before_anything_waits(watch: Any, said: list[str]) -> None:
    """Of two models in one pass: DDP queues its waits after the hooks that watch."""
    waits = [partial(ENGINE.queue_callback, partial(said.append, f"{one} waits")) for one in "ab"]
    works = (watch("a"), waits[0], watch("b"), waits[1])
    chain(*works, lambda: said.append("last work")).backward()
    assert said == ["last work", "a, failed=False", "b, failed=False", "a waits", "b waits"]


def test_a_pass_that_raises_has_no_end(watch: Any, said: list[str]) -> None:
    """Its calls are told so at once; the next pass is one of its own; outside there is none."""
    with pytest.raises(ZeroDivisionError):
        chain(watch("a"), watch("after", backward.after_pass_end), lambda: 1 // 0).backward()
    assert said == ["a, failed=True", "after, failed=True"]
    assert not watch("outside")()
    chain(watch("b")).backward()
    assert said[2:] == ["b, failed=False"]


def test_a_pass_inside_another_has_its_own_end(watch: Any, said: list[str]) -> None:
    """Re-entrant checkpoints run hooks in one, at whose end DDP waits."""
    inner = lambda: chain(watch("inner")).backward()  # noqa: E731
    chain(watch("outer"), inner, lambda: said.append("work")).backward()
    assert said == ["inner, failed=False", "work", "outer, failed=False"]


@pytest.mark.parametrize(
    ("how", "ends"),
    [
        # Under a static graph all hooks of the first pass run at its end.
        (backward.at_pass_end, ["a, failed=False", "queued", "b, failed=False"]),
        # FSDP's roots queue callbacks of their own, in which they reduce their last gradients.
        (backward.after_pass_end, ["queued", "a, failed=False", "b, failed=False"]),
    ],
)
def test_callbacks_that_are_queued_later(
    how: Any, ends: list[str], watch: Any, said: list[str]
) -> None:
    """They are told too; what watches after them is told after them."""

    def queued() -> None:
        said.append("queued")
        watch("b")()

    chain(watch("a", how), lambda: ENGINE.queue_callback(queued)).backward()
    assert said == ends


def test_what_a_reentrant_checkpoint_calls() -> None:
    """Without gradients at first, and again in the backward pass, which has a number."""
    seen: list[tuple[bool, bool]] = []

    def block(at: torch.Tensor) -> torch.Tensor:
        seen.append((backward.is_checkpointed(), backward.current_pass() != -1))
        return at * 2

    at = torch.ones(1, requires_grad=True)
    checkpoint(block, at, use_reentrant=True).backward()
    block(at)
    assert seen == [(True, False), (False, True), (False, False)]


def test_from_scaling_to_the_update() -> None:
    """However often it is asked for; a scaler that is off changes nothing."""
    for _ in range(2):
        backward.hear_of_scalers()
    scaler, off = GradScaler("cpu", init_scale=8.0), GradScaler("cpu", enabled=False)
    loss = torch.tensor(2.0, requires_grad=True)
    assert off.scale(loss) is loss
    assert not backward.is_loss_scaled()
    scaled = scaler.scale(loss)
    off.scale(loss)
    assert backward.is_loss_scaled()
    scaled.backward()
    scaler.step(torch.optim.SGD([loss], lr=1.0))
    assert backward.is_loss_scaled()
    scaler.update()
    assert not backward.is_loss_scaled()
    assert (scaled.item(), loss.item()) == (16.0, 1.0)
