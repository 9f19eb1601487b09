"""Each address that is printed with a finding, an anomaly or a hang leads to its anchor."""

from __future__ import annotations

import pytest

from hooktrace.analysis.report.findings import RULES, UNIT_RULES
from hooktrace.records.addresses import address
from hooktrace.records.anomalies import ANOMALIES
from hooktrace.records.hang import HANGS

from ..distributed.harness import REPOSITORY
from .pages import Page

PRINTED = sorted(
    {
        *(address("report", rule.__name__) for rule in (*RULES, *UNIT_RULES)),
        *(address("errors-and-anomalies", kind) for kind in ANOMALIES),
        *(address("hangs", kind) for kind in HANGS),
    }
)


def test_each_leads_to_an_anchor() -> None:
    for path, _, anchor in (one.partition("#") for one in PRINTED):
        assert anchor in Page(REPOSITORY / path).anchors


@pytest.mark.parametrize(
    ("url", "printed"),
    [
        ("https://docs.example.com/v1/", "https://docs.example.com/v1/hangs/#busy"),
        ("https://git.example.com/docs/{page}.md", "https://git.example.com/docs/hangs.md#busy"),
        ("", "docs/hangs.md#busy"),
    ],
)
def test_a_site_is_put_in_front(url: str, printed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOKTRACE_DOCS_URL", url)
    assert address("hangs", "busy") == printed
