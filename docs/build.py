"""What mkdocs asks for while it builds the site: see mkdocs.yml.

README.md, CONTRIBUTING.md, CHANGELOG.md --on_files--> index, contributing, changelog
each page --on_page_markdown--> its generated tables anew, links to those three as pages
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
from generate import filled

REPOSITORY = Path(__file__).parent.parent

_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that stand at the repository's root."""
    for name, page in _PAGES.items():
        text = (REPOSITORY / name).read_text("utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page as the site has it."""
    return _as_pages(filled(markdown))


def _as_pages(text: str) -> str:
    """Return a page whose links within the repository lead to pages of the site."""
    text = re.sub(r"\]\((?:\.\./)?(README|CONTRIBUTING|CHANGELOG)\.md", _page, text)
    text = re.sub(r"\]\(docs/", "](", text)
    # what is no page stands as its path
    return re.sub(r"\[([^\]]+)\]\((?:\.\./)?(?:LICENSE|examples/[^)]*)\)", r"\1", text)


def _page(found: re.Match[str]) -> str:
    return f"]({_PAGES[found[1] + '.md']}"
