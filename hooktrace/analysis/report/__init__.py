"""``hooktrace report``: what the record files of all ranks say.

In goes a Timeline; out come findings and facts, as text, as a page with pictures, or as JSON.

    record files --read.py--> Timeline --step_arrays.py--> StepArrays --build_facts.py--> ModelFacts
                                                               |     (late_ranks, exposed_tail,  |
                                                               |      slow_steps)                |
                                                               |         rules_*.py, findings.py |
                                                               v                                 v
                                            RunReport: facts, findings, arrays, missing.py
                                              |              |              |
                                         terminal.py     page.py        as_json.py
                                         (rich)      (Jinja2, svg.py)   (msgspec)

Neither torch nor a backend's library is imported, so this runs where the files are.
"""

from __future__ import annotations

from .facts import Finding
from .read import ReportError
from .run_report import RunReport, build_report

__all__ = ["Finding", "ReportError", "RunReport", "build_report"]
