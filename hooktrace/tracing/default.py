"""The tracer that ``trace()`` uses when it is given none: one a process, set up by its environment.

HOOKTRACE_* --settings--> Tracer, made on first use
"""

from __future__ import annotations

import os
import threading

from .settings import (
    debug_from_environment,
    error_every_from_environment,
    exporters_from_environment,
    run_id_from_environment,
)
from .state import State
from .tracer import ERROR_EVERY, Tracer

__all__ = ["default_tracer"]

_tracer: Tracer | None = None
_lock = threading.Lock()


def default_tracer() -> Tracer:
    """Return the tracer that ``trace()`` uses when it is given none.

    It is made on first use, set up from ``HOOKTRACE_*`` environment variables (``settings.py``),
    and made anew when it was closed.
    """
    global _tracer  # noqa: PLW0603  # the one process-wide tracer
    with _lock:
        if _tracer is None or _tracer.state is State.CLOSED:
            _tracer = Tracer(
                exporters_from_environment(),
                run_id=run_id_from_environment(),
                error_every=error_every_from_environment(ERROR_EVERY),
                debug=debug_from_environment(),
            )
        return _tracer


def _renew_lock() -> None:
    global _lock  # noqa: PLW0603  # the parent may have held it
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
