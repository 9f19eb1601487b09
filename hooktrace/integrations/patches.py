"""Methods of torch's classes with something around them; needs no torch.

replace(owner, name, make) --> owner.name = make(original)
when_made(DDP, then)       --> then(model), once a model has its reducer
make_with_cap(DDP, cap_of) --> DDP(module, bucket_cap_mb=...)
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger("hooktrace")

DDP, FSDP = "torch.nn.parallel.distributed", "torch.distributed.fsdp"
"""The modules of the classes."""


@functools.cache
def warn_once(what: str) -> None:
    """Log a warning, which the process has not had before."""
    logger.warning(what)


def replace(owner: Any, name: str, make: Callable[[Any], Any], missing: str = "") -> None:
    """Put what ``make`` makes of an attribute in its place.

    Where there is none nothing is done; ``missing`` says then what hooktrace cannot see.
    """
    original = None if owner is None else getattr(owner, name, None)
    if original is not None:
        setattr(owner, name, functools.wraps(original)(make(original)))
    elif missing:
        logger.warning("this version of torch %s in a way that hooktrace cannot see", missing)


def when_made(ddp: Any, then: Callable[[Any], object]) -> None:
    """Have ``then`` called with each DDP model that is made; what it raises is logged."""

    def telling(make_reducer: Any) -> Any:
        def _ddp_init_helper(self: Any, *args: Any, **options: Any) -> Any:
            result = make_reducer(self, *args, **options)
            try:
                then(self)
            except Exception:  # whatever it is, the script goes on
                logger.exception("a DDP model is not traced; training goes on")
            return result

        return _ddp_init_helper

    replace(ddp, "_ddp_init_helper", telling, "makes DDP models")


def make_with_cap(ddp: Any, cap_of: Callable[[], float | None]) -> None:
    """Have models made with the limit of bucket sizes that is asked for, if one is."""
    signature = inspect.signature(ddp.__init__)

    def limiting(original: Any) -> Any:
        def __init__(self: Any, *args: Any, **options: Any) -> None:  # noqa: N807  # DDP's own
            bound = signature.bind(self, *args, **options)
            cap = cap_of()
            if cap:
                bound.arguments["bucket_cap_mb"] = cap
                bound.arguments.pop("bucket_cap_mb_list", None)  # of newer torch, in its place
            original(*bound.args, **bound.kwargs)

        return __init__

    replace(ddp, "__init__", limiting)
