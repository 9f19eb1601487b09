"""The text that the demo trains on."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch

from hooktrace.commands.demo.language_model import VOCABULARY, batches, read_corpus


def test_the_standard_library_is_a_large_text_of_small_codes() -> None:
    """Every Python gives millions of characters, and the model can embed each of them."""
    corpus = read_corpus()
    assert len(corpus) > 1_000_000
    assert int(corpus.max()) < VOCABULARY


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


def test_seeds_give_the_ranks_different_text() -> None:
    """The order of windows follows the seed."""
    corpus = torch.arange(100, dtype=torch.uint8)
    first, again, other = (
        next(batches(corpus, batch=4, length=8, seed=seed))[0] for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
