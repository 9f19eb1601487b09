"""By what ranks know a model, where many models come and go."""

from __future__ import annotations

import pytest

from hooktrace.probes import agreement
from hooktrace.probes.agreement import AlikeModels


def test_models_that_come_and_go_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their numbers differ all the same: the store still has what was agreed on before."""
    monkeypatch.setattr(agreement, "MOST_KINDS", 4)
    alike = AlikeModels()
    given = [(key, alike.number(key)) for key in "aaabcdefgaabbcdefghijkaab"]
    assert len(set(given)) == len(given)
    assert given[:4] == [("a", 1), ("a", 2), ("a", 3), ("b", 1)]
    assert len(alike._last) == agreement.MOST_KINDS
