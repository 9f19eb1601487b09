"""The drain's thread: it works every now and then, at once when asked, and a last time at the end.

start --> cycle, cycle, ... <--wake, flush (waits)--   stop --> last cycle
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..staging.devices import relax_capture_mode


class Drain:
    """A daemon thread that works at once and every ``interval_s`` seconds until it is stopped.

    ``cycle`` is called for each piece of work, with whether it is the last; it may raise nothing.
    """

    def __init__(self, cycle: Callable[[bool], None], interval_s: float) -> None:
        self._cycle = cycle
        self._interval_s = interval_s
        self._stopping = False
        self._ended = False
        self._woken = True
        self._requested = 0
        self._served = 0
        self._turn = threading.Condition()
        self._worker: threading.Thread | None = None
        self._thread = threading.Thread(target=self._main, name="hooktrace-drain", daemon=True)

    def start(self) -> None:
        """Start the thread; raises ``RuntimeError`` where the system gives none."""
        self._thread.start()

    def wake(self) -> None:
        """Let the thread work now and not at its next interval; does not wait."""
        with self._turn:
            self._woken = True
            self._turn.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Have everything pushed so far handled; false when that took longer than the timeout.

        On the drain's own thread, in an exporter or a log handler, it is false at once.
        """
        if threading.current_thread() is self._thread:
            return False
        with self._turn:
            self._requested += 1
            ticket = self._requested
            self._turn.notify_all()
            return self._turn.wait_for(lambda: self._ended or self._served >= ticket, timeout_s)

    def stop(self, timeout_s: float) -> bool:
        """Work once more and end; false when the deadline passed first.

        Without a running thread this happens at once, on the caller's.
        """
        with self._turn:
            self._stopping = True
            self._turn.notify_all()
        if self._thread.ident is None:
            self._main()
        if threading.current_thread() is not self._worker:
            with self._turn:
                self._turn.wait_for(lambda: self._ended, timeout_s)
            if self._ended and self._thread.is_alive():
                self._thread.join(timeout_s)
        return self._ended

    def _main(self) -> None:
        with self._turn:  # a signal handler may stop it while its thread starts
            if self._worker is not None:
                return
            self._worker = threading.current_thread()
        relax_capture_mode()
        try:
            stopping = False
            while not stopping:
                with self._turn:
                    self._turn.wait_for(self._wanted, self._interval_s)
                    stopping, ticket = self._stopping, self._requested
                    self._woken = False
                self._cycle(stopping)
                with self._turn:
                    self._served = ticket
                    self._turn.notify_all()
        finally:
            with self._turn:
                self._ended = True
                self._turn.notify_all()

    def _wanted(self) -> bool:
        return self._stopping or self._woken or self._requested > self._served
