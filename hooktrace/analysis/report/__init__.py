"""``hooktrace report``: what the record files of all ranks say.

    Run --run/dense.py--> StepArrays --facts.py--> ModelFacts --rules.py, findings.py--> Finding
                              |                         |                                   |
                              +---- RunReport: facts, findings, arrays, what is missing ----+
                                        |
               view.py, tables.py, pictures.py: a document, or JSON

Neither torch nor a backend's library is imported, so this runs where the files are.
"""

from __future__ import annotations

from .facts import Finding
from .view import RunReport, build_report

__all__ = ["Finding", "RunReport", "build_report"]
