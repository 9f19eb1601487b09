"""The text that the demo trains on."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch

from hooktrace.commands.demo.language_model import batches, read_corpus


def test_a_python_without_source_is_named(tmp_path: Path) -> None:
    """A directory without source files ends in what to use instead."""
    with pytest.raises(FileNotFoundError, match="use a Python that has"):
        read_corpus(tmp_path)


def test_targets_are_the_next_characters_up_to_the_end_of_the_text() -> None:
    """Each target is its input's successor, and the last window of the text can come up."""
    corpus = torch.arange(10, dtype=torch.uint8)
    seen = set()
    for inputs, targets in islice(batches(corpus, batch=4, length=8, seed=0), 20):
        assert torch.equal(targets, inputs + 1)
        assert inputs.shape == (4, 8)
        seen.update(targets[:, -1].tolist())
    assert seen == {8, 9}
