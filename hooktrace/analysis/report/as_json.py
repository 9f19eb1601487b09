"""The report for programs: findings and facts as one JSON object.

    {"schema": 1,
     "run": the run's record or null, "ranks": 3, "unaligned": [2], "missing": ["rank 2: ..."],
     "models": [{"facts": fields of ModelFacts, "findings": [fields of Finding]}],
     "findings": of models of which no step has settled}

Times are ns, sizes bytes, shares from 0 to 1, and what nobody knows is null.  ``schema`` changes
when a field changes its name or meaning; new fields may come without.
"""

from __future__ import annotations

import msgspec

from .run_report import RunReport

SCHEMA = 1


def report_json(report: RunReport) -> str:
    """Return the report as JSON, indented, with a newline at its end."""
    content = {
        "schema": SCHEMA,
        "run": report.run,
        "ranks": report.ranks,
        "unaligned": report.unaligned,
        "missing": report.missing,
        "models": [{"facts": one.facts, "findings": one.findings} for one in report.models],
        "findings": report.findings,
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"
