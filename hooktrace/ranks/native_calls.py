"""Calls into torch that may take long, on threads of their own, and how a process ends with them.

    store, process groups --call_aside--> a daemon thread       at exit: --wait--> they end, or 2 s

Where native code comes back to Python while the interpreter ends, Python ends the thread right
there, which C++ takes for a crash: "terminate called without an active exception".
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class _Call(threading.Thread):
    pass


def call_aside(work: Callable[[], object], name: str) -> threading.Thread:
    """Return a thread that has begun to do ``work``, which raises nothing."""
    thread = _Call(target=work, name=name, daemon=True)
    thread.start()
    return thread


def result_aside(work: Callable[[], T], name: str) -> Future[T]:
    """Return what will have the result of ``work``, or what it raised; whoever gives up may go."""
    result: Future[T] = Future()
    result.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result.set_result(work())
        except Exception as error:
            result.set_exception(error)

    call_aside(run, name)
    return result


def wait(timeout_s: float = 2.0) -> bool:
    """Return whether all calls came back within so many seconds, for a process that ends."""
    end = time.monotonic() + timeout_s
    calls = [one for one in threading.enumerate() if isinstance(one, _Call) and one.ident]
    for call in calls:
        call.join(max(0.0, end - time.monotonic()))
    return not any(call.is_alive() for call in calls)
