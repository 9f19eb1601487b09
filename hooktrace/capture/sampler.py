"""What a model needs of whatever looks at some of its calls; ``probes.step_sampler`` is that."""

from __future__ import annotations

from typing import Any, Protocol


class Sampler(Protocol):
    """What looks at some of a model's calls."""

    @property
    def next_step(self) -> int:
        """The next step at which there is anything to do."""

    def enter(self, start: Any, sink: Any) -> Any:
        """Look at a bucket of a step at or after ``next_step``."""

    def miss(self, slot: Any, step: int, sink: Any) -> None:
        """Take note that a call was not looked at: other ranks may wait for it."""

    def replan(self, burst: int, step: int) -> bool:
        """Look at the steps after one too; returns whether there is anything to look at."""

    asked: bool
    """Whether something was changed meanwhile: the next call is to be looked at."""

    def leave(self) -> None:
        """Let the other ranks know that this one samples no more."""

    def begin_in_child(self) -> None:
        """In a forked child, let go of what is the parent's."""
