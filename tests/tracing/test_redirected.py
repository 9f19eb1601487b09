"""Where a tracer's records go in a job that hooktrace started to measure it."""

from __future__ import annotations

import pytest

from hooktrace.tracing import redirected as of_jobs
from hooktrace.tracing.redirected import redirected


class Given:
    """An exporter that says whether it was closed."""

    name = "given"
    closed = False

    def export(self, batch: object) -> None:
        raise AssertionError

    def close(self) -> None:
        """Take note of it, and fail as others may."""
        self.closed = True
        raise OSError("gone")


class Measuring(Given):
    """What hooktrace measures a job with."""

    measures_the_job = True


def test_a_job_as_users_start_it_exports_to_what_it_says() -> None:
    given = Given()
    assert redirected([given]) == (given,)
    assert not given.closed


def test_a_measured_job_exports_nothing_that_its_script_asks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What it was given is closed; hooktrace's own stays."""
    monkeypatch.setattr(of_jobs, "is_measured", True)
    given, own = Given(), Measuring()
    assert redirected([own, given]) == (own,)
    assert redirected([given]) == ()
    assert (given.closed, own.closed) == (True, False)
    assert "could not be closed" in caplog.text
