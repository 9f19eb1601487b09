"""The picture of a step: a file of its own, in which no name is markup."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

import hooktrace
from hooktrace.records.errors import UsageError
from hooktrace.testing.synthetic import SyntheticJob, write_job

JOB = SyntheticJob(ranks=2, steps=20, late_ms={1: 9.0}, error=0.02, error_every=7)


@pytest.fixture
def run(tmp_path: Path) -> hooktrace.Run:
    write_job(JOB, tmp_path)
    return hooktrace.load(tmp_path)


def test_it_is_part_of_the_notebook(run: hooktrace.Run) -> None:
    """An image with its data inside: no address is loaded, and nothing runs."""
    picture = run.timeline(5)
    html = picture._repr_html_()
    (data,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', html)
    assert base64.b64decode(data).decode() == picture.svg
    assert 'alt="step 5 of synthetic: allreduce_hook, 2 ranks, ' in html
    assert "<script" not in picture.svg
    assert not re.findall(r"(?:href|url|src)\s*[=(]", picture.svg)


def test_every_bucket_and_what_is_drawn(run: hooktrace.Run) -> None:
    tree = ElementTree.fromstring(run.timeline(5).svg)
    classes = [element.get("class") for element in tree.iter()]
    assert classes.count("tip") == 2 * len(JOB.bucket_bytes)
    texts = [element.text for element in tree.iter() if element.get("class") == "tick"]
    assert {"compress", "wire", "exposed", "last gradient ready", "rank 0", "rank 1"} <= set(texts)
    assert "queue" in texts or "queue" not in classes


def test_names_are_text(tmp_path: Path) -> None:
    """Not markup, and nothing that an XML file may not have."""
    name = '<script>&"\x00\x1b' + "x" * 200
    write_job(SyntheticJob(ranks=1, steps=4, model=name), tmp_path)
    picture = hooktrace.load(tmp_path).timeline()
    ElementTree.fromstring(picture.svg)
    assert "<script" not in picture.svg
    assert "<script" not in picture._repr_html_()


def test_steps_that_are_not_drawn(run: hooktrace.Run) -> None:
    """The error names steps that are: a probed one's times are not training's."""
    for step in (7, 99):
        with pytest.raises(UsageError, match=rf"step {step} is none of .*one of 1-6, 8-13, 15-20"):
            run.timeline(step)
    with pytest.raises(UsageError, match="no model is called 'net'; pass one of synthetic"):
        run.timeline(model="net")
