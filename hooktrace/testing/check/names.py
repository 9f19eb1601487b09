"""Hooks that DDP refuses for their name alone, and how they are checked all the same.

DDP takes no hook called ``bf16_compress_hook`` where there is no NCCL, although gloo all-reduces
bfloat16 correctly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Renamed:
    """A hook under a name that DDP has nothing against."""

    def __init__(self, hook: Callable[..., Any]) -> None:
        self._hook = hook
        self.__name__ = self.__qualname__ = f"{getattr(hook, '__name__', 'hook')}_renamed"

    def __call__(self, state: Any, bucket: Any) -> Any:
        """Run the hook."""
        return self._hook(state, bucket)


def refused_by_name(error: BaseException) -> bool:
    """Return whether DDP refused a hook for its ``__name__``, as bf16 hooks on gloo."""
    return "BF16 all reduce communication hook" in str(error)
