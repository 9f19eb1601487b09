"""What hooktrace raises on behalf of a hook."""

from __future__ import annotations

import pickle

from hooktrace.records.errors import HookError


def test_a_hooks_error_says_where_and_pickles() -> None:
    """A launcher sends it from process to process."""
    error = pickle.loads(pickle.dumps(HookError("mine", 3, "wire", "boom")))
    assert str(error) == "hook 'mine', bucket 3, stage wire: boom"
    assert (error.hook, error.bucket, error.stage, error.reason) == ("mine", 3, "wire", "boom")
