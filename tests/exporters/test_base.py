"""What an exporter says whose backend's package is missing."""

from __future__ import annotations

import pytest

from hooktrace.exporters.base import needing


def test_the_fix_names_the_extra() -> None:
    """And the package, and why it cannot be imported."""
    with pytest.raises(ImportError) as caught, needing("papyrus-client", "Papyrus"):
        import papyrus  # type: ignore[import-not-found] # noqa: F401
    assert str(caught.value) == (
        "the Papyrus exporter needs papyrus-client (No module named 'papyrus'); "
        "pip install 'hooktrace[exporters]'"
    )


def test_other_errors_are_their_own() -> None:
    with pytest.raises(ValueError, match="port"), needing("papyrus-client", "Papyrus"):
        raise ValueError("port")
