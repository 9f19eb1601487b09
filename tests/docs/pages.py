"""Markdown pages as the tests see them.

a file --Page--> blocks    fenced code: language, text
                 links     where they lead
                 anchors   where links into the page may lead, as GitHub names headings
                 codes     inline code
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..distributed.harness import REPOSITORY

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """Fenced code."""

    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The name that a Python block gives itself in its first line, as ``# train.py``."""
        named = re.match(r"# (\w+\.py)\n", self.text)
        return named[1] if named else None


class Page:
    """A Markdown file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text("utf-8")

    def __repr__(self) -> str:
        return str(self.path.relative_to(REPOSITORY))

    @property
    def blocks(self) -> list[Block]:
        """Fenced code, in order."""
        return [Block(*found) for found in _FENCE.findall(self.text)]

    @cached_property
    def prose(self) -> str:
        """The text without fenced code."""
        return _FENCE.sub("", self.text)

    @property
    def links(self) -> list[str]:
        """The targets of links and pictures."""
        return _LINK.findall(self.prose)

    @property
    def codes(self) -> list[str]:
        """Inline code, on one line."""
        return [" ".join(code.split()) for code in _CODE.findall(self.prose)]

    @property
    def commands(self) -> list[str]:
        """Lines of shell blocks, without comments and what a line sets in the environment."""
        lines = [line for b in self.blocks if b.language == "bash" for line in b.text.splitlines()]
        return [re.sub(r"\s+# .*|^([A-Z_]+=\S+ )+", "", line) for line in lines if line]

    @property
    def anchors(self) -> set[str]:
        """What may follow the ``#`` of a link to this page."""
        found: set[str] = set()
        for heading in _HEADING.findall(self.prose):
            slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            copies = sum(1 for n in range(100) if (f"{slug}-{n}" if n else slug) in found)
            found.add(f"{slug}-{copies}" if copies else slug)
        return found | set(re.findall(r'<a id="([^"]+)">', self.prose))


PAGES = [
    Page(path) for path in sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")])
]
DOCS = "\n".join(page.text for page in PAGES if page.path.name != "CHANGELOG.md")
"""All that says how things are, and not how they were."""
