"""Where the docs explain a finding, an anomaly or a hang: an address that is printed with it.

    rule, kind --address--> docs/report.md#ranks_wait, or a page at HOOKTRACE_DOCS_URL

``tests/docs/test_addresses.py`` holds that each leads to an anchor.
"""

from __future__ import annotations

import os
from typing import Literal

Page = Literal["report", "errors-and-anomalies", "hangs"]

_REPOSITORY = "docs/{page}.md"


def address(page: Page, name: str) -> str:
    """Return where a page of the docs explains a rule or a kind.

    ``HOOKTRACE_DOCS_URL`` is the address of the site, or of each page with ``{page}`` in it.

    >>> address("report", "ranks_wait")
    'docs/report.md#ranks_wait'
    """
    url = os.environ.get("HOOKTRACE_DOCS_URL") or _REPOSITORY
    if "{page}" not in url:
        url = url.rstrip("/") + "/{page}/"
    return f"{url.replace('{page}', page)}#{name}"
