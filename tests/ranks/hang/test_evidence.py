"""What is seen of threads that wait: of this process, as it runs."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from hooktrace.ranks.hang import evidence
from hooktrace.ranks.hang.evidence import LastingExceptions, ThreadStack, main_stack, stacks

_taken = threading.Lock()


def seen(work: Callable[[], object], until: Callable[[ThreadStack], bool]) -> ThreadStack:
    """Return the stack of a thread that does some work, once it is where it is to be."""
    thread = threading.Thread(target=work, daemon=True, name="watched")
    thread.start()
    end = time.monotonic() + 60
    found: list[ThreadStack] = []
    while time.monotonic() < end:
        looker = threading.Thread(target=lambda: found.extend(stacks()))
        looker.start()
        looker.join()
        own = [stack for stack in found if stack.ident == thread.ident]
        if own and until(own[-1]):
            return own[-1]
        found.clear()
    raise AssertionError(f"not seen: {own}")


@pytest.fixture
def of_native_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take threads for ones of native code, of which alone it is told."""
    monkeypatch.setattr(evidence, "_BOOTSTRAP", "none")


def in_native_wait(stack: ThreadStack) -> bool:
    """Whether a thread is in an event's ``wait``."""
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
    end = time.monotonic() + 10
    while not alive and time.monotonic() < end:
        time.sleep(0.01)
    assert alive == [False]


@pytest.mark.usefixtures("of_native_code")
def test_a_line_that_waits() -> None:
    """By its code, in the middle of a chain too; other lines of the function say nothing."""
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


def test_torch_that_imports_a_part_of_itself() -> None:
    """At the first use of a compiler, say; that takes many seconds on a busy machine."""
    event = threading.Event()
    path = f"{torch.__path__[0]}/_late.py"
    part = compile("event.wait()", path, "exec")
    found = seen(lambda: exec(part, {"event": event}), in_native_wait)
    event.set()
    assert found.doing == ("importing",)


def handles(error: Exception, event: threading.Event) -> None:
    try:
        raise error
    except Exception:
        event.wait()


def test_exceptions() -> None:
    """What is handled now, and where it was raised."""
    event = threading.Event()
    found = seen(lambda: handles(ValueError("boom\nmore"), event), lambda s: bool(s.exception))
    event.set()
    assert found.exception.startswith("ValueError: boom at test_evidence.py:")


def test_the_end_of_an_iterator_is_no_exception() -> None:
    """Loops that begin anew handle it all the time."""
    event = threading.Event()
    found = seen(lambda: handles(StopIteration(), event), in_native_wait)
    event.set()
    assert found.exception == ""


def test_training_in_an_except() -> None:
    """What is handled while steps go by is no news; what came since is."""
    lasting = LastingExceptions()
    event = threading.Event()
    handled = seen(lambda: handles(ImportError("no such"), event), lambda s: bool(s.exception))
    for steps in (5, 6):
        lasting.look(steps)
        assert handled.ident in {one.ident for one in told(lasting) if one.exception}
    lasting.look(7)
    assert handled.ident not in {one.ident for one in told(lasting) if one.exception}
    event.set()


def told(lasting: LastingExceptions) -> list[ThreadStack]:
    return stacks(lasting.known)


def deep(levels: int, event: threading.Event) -> None:
    if levels:
        deep(levels - 1, event)
    else:
        event.wait()


def test_bounded() -> None:
    """A deep stack shows both of its ends."""
    event = threading.Event()
    found = seen(lambda: deep(200, event), in_native_wait)
    event.set()
    assert len(found.frames) == evidence._MOST_FRAMES + 1
    assert found.frames[8] == f"... {200 + 1 + 4 + 2 - evidence._MOST_FRAMES} frames ..."
    assert found.where.endswith("deep")


def test_the_main_thread_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is among those that are shown, however many there are."""
    monkeypatch.setattr(evidence, "MOST_THREADS", 1)
    event = threading.Event()
    others = [threading.Thread(target=event.wait, daemon=True) for _ in range(3)]
    for thread in others:
        thread.start()
    found: list[ThreadStack] = []
    looker = threading.Thread(target=lambda: found.extend(stacks()))
    looker.start()
    looker.join()
    event.set()
    assert [stack.name for stack in found] == ["MainThread"]


def test_where_is_the_users_code() -> None:
    """Not torch's, the standard library's or hooktrace's."""
    assert not evidence.is_users(torch.__file__)
    assert not evidence.is_users(threading.__file__)
    assert not evidence.is_users(evidence.__file__)
    assert not evidence.is_users("<frozen importlib._bootstrap>")
    assert evidence.is_users(__file__)
    assert evidence.is_users("/usr/lib/python3/dist-packages/other/a.py")


def test_the_thread_that_trains() -> None:
    """That of the hooks, where it is one of Python's; else the main thread."""
    main = threading.main_thread().ident or 0
    of_main = ThreadStack(name="m", ident=main, frames=(), where="a")
    worker = ThreadStack(name="w", ident=main + 1, frames=(), where="b")
    engine = ThreadStack(name="e", ident=main + 2, frames=(), where="c", foreign=True)
    threads = [engine, worker, of_main]
    assert main_stack(threads, [main + 1]) is worker
    assert main_stack(threads, [main + 2]) is of_main
    assert main_stack(threads, [main + 3]) is of_main
    assert main_stack([], []) is None
