"""What is seen of threads that wait: of this process, as it runs."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from hooktrace.ranks.hang import evidence
from hooktrace.ranks.hang.evidence import ThreadStack, stacks
from tests.ranks.channel.jobs import wait_for

_taken = threading.Lock()


def looked() -> list[ThreadStack]:
    found: list[ThreadStack] = []
    looker = threading.Thread(target=lambda: found.extend(stacks()))
    looker.start()
    looker.join()
    return found


def seen(work: Callable[[], object], until: Callable[[ThreadStack], bool]) -> ThreadStack:
    """Return the stack of a thread that does some work, once it is where it is to be."""
    thread = threading.Thread(target=work, daemon=True, name="watched")
    thread.start()
    own: list[ThreadStack] = []

    def is_there() -> bool:
        own[:] = [stack for stack in looked() if stack.ident == thread.ident]
        return bool(own) and until(own[0])

    assert wait_for(is_there), own
    return own[0]


def in_native_wait(stack: ThreadStack) -> bool:
    return stack.frames[-1].endswith(" wait")


def test_looking_keeps_nothing_alive() -> None:
    """A batch that a thread lets go of is gone then, and not when its function returns."""
    alive: list[bool] = []

    def trains() -> None:
        batch = torch.ones(1)
        batch_is = weakref.ref(batch)
        _taken.acquire()
        _taken.release()
        del batch
        alive.append(batch_is() is not None)

    with _taken:
        line = trains.__code__.co_firstlineno + 3
        seen(trains, lambda stack: stack.where == f"test_evidence.py:{line} trains")
    assert wait_for(lambda: alive)
    assert alive == [False]


def test_a_line_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its code, in the middle of a chain too; other lines of the function say nothing."""
    monkeypatch.setattr(evidence, "_BOOTSTRAP", "none")  # of native code alone it is told
    future: Any = torch.futures.Future()

    def chained() -> None:
        (
            future.then(lambda done: done.value())
            .wait()
        )  # fmt: skip

    def waits_later() -> None:
        _taken.acquire()
        future.wait()

    assert seen(chained, lambda stack: stack.waits).where.endswith(" chained")
    with _taken:
        assert not seen(waits_later, lambda stack: stack.where.endswith(" waits_later")).waits
    future.set_result(torch.ones(1))


def handles(error: Exception, event: threading.Event) -> None:
    try:
        raise error
    except Exception:
        event.wait()


def deep(levels: int, event: threading.Event) -> None:
    if levels:
        deep(levels - 1, event)
    else:
        event.wait()


IMPORTED = compile("event.wait()", f"{torch.__path__[0]}/_late.py", "exec")


def test_what_a_thread_is_at() -> None:
    """What it handles, and where that was raised; a loop that begins anew handles nothing.

    A deep stack shows both of its ends.  The first use of a compiler imports parts of torch.
    """
    event = threading.Event()
    raised = seen(lambda: handles(ValueError("boom\nmore"), event), lambda s: bool(s.exception))
    looped = seen(lambda: handles(StopIteration(), event), in_native_wait)
    far = seen(lambda: deep(200, event), in_native_wait)
    imports = seen(lambda: exec(IMPORTED, {"event": event}), in_native_wait)
    event.set()
    assert raised.exception.startswith("ValueError: boom at test_evidence.py:")
    assert looped.exception == ""
    assert len(far.frames) == evidence._MOST_FRAMES + 1
    assert far.frames[8] == f"... {200 + 1 + 4 + 2 - evidence._MOST_FRAMES} frames ..."
    assert far.where.endswith("deep")
    assert imports.doing == ("importing",)


def test_the_main_thread_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is among those that are shown, however many there are."""
    monkeypatch.setattr(evidence, "MOST_THREADS", 1)
    assert [stack.name for stack in looked()] == ["MainThread"]


@pytest.mark.parametrize(
    ("file", "users"),
    [
        (torch.__file__, False),
        (threading.__file__, False),
        (evidence.__file__, False),
        ("<frozen importlib._bootstrap>", False),
        (__file__, True),
        ("/usr/lib/python3/dist-packages/other/a.py", True),
    ],
)
def test_where_is_the_users_code(file: str, users: bool) -> None:
    assert evidence.is_users(file) == users
