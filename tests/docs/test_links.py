"""Links of the docs lead somewhere, and the README stays short."""

from __future__ import annotations

import pytest

from ..distributed.harness import REPOSITORY
from .pages import PAGES, Page


@pytest.mark.parametrize("page", PAGES, ids=repr)
def test_links_lead_somewhere(page: Page) -> None:
    """Each relative link is to a file that is there, each anchor to one of its headings."""
    dead = [link for link in page.links if not link.startswith("http") and not _leads(page, link)]
    assert not dead


def _leads(page: Page, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (page.path.parent / name).resolve() if name else page.path
    return target.is_file() and (not anchor or anchor in Page(target).anchors)


def test_readme_is_short() -> None:
    """A stranger reads 120 lines at most, of ordinary length, and finds the way to every page."""
    readme = Page(REPOSITORY / "README.md")
    lines = readme.text.splitlines()
    assert len(lines) <= 120
    assert not [line for line in lines if len(line) > 120]
    linked = {link.partition("#")[0] for link in readme.links}
    assert not {f"docs/{p.name}" for p in (REPOSITORY / "docs").glob("*.md")} - linked
