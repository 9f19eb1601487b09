"""``hooktrace report`` and ``hooktrace export``: what the trace files of all ranks say.

    trace files --read.py--> Timeline --gather.py--> RunFacts --findings.py--> sentences
                                 |                     |  |
                                 |                     |  +--> terminal.py: tables, rich
                                 |                     +-----> html.py, pictures.py: one file
                                 +--export.py--> one trace of all ranks, for Perfetto

Neither torch nor a backend's library is imported, so this runs where the files are.
"""

from __future__ import annotations

from .build_facts import build_facts
from .facts import RunFacts
from .finding import Finding
from .findings import findings
from .read import ReportError

__all__ = ["Finding", "ReportError", "RunFacts", "build_facts", "findings"]
