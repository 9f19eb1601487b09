"""The exceptions that hooktrace raises: on behalf of a hook, and for options that cannot work."""

from __future__ import annotations

from numbers import Integral


class HookError(RuntimeError):
    """A hook failed; the message names the hook, the bucket, or unit, and the stage.

    The hook's own exception is the ``__cause__``.  Where it is raised in a callback, torch turns it
    into a ``RuntimeError`` with the same message before ``backward()`` raises it.
    """

    def __init__(self, hook: str, bucket: int | str, stage: str, reason: str) -> None:
        where = f"unit {bucket}" if isinstance(bucket, str) else f"bucket {bucket}"
        super().__init__(f"hook {hook!r}, {where}, stage {stage}: {reason}")
        self.hook = hook
        self.bucket = bucket
        self.stage = stage
        self.reason = reason

    def __reduce__(self) -> tuple[type[HookError], tuple[str, int | str, str, str]]:
        return HookError, (self.hook, self.bucket, self.stage, self.reason)


class AnomalyError(RuntimeError):
    """A tracer made with ``on_anomaly="raise"`` saw an anomaly; the message is the record's."""


class UsageError(Exception):
    """An option that cannot work; the message ends in what to pass instead."""


def check_counts(least: int, **options: object) -> None:
    """Raise ``ValueError`` for an option that is no whole number, or below ``least``."""
    for name, value in options.items():
        if not isinstance(value, Integral) or value < least:
            raise ValueError(f"{name} is {value!r}; pass a whole number of at least {least}")
