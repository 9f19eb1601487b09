"""The report as one HTML file: nothing is loaded, nothing runs; all names are escaped.

RunReport --templates/report.html.j2--> head, tiles, findings, pictures, tables, what is missing
"""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ...records.units import bandwidth, mb, ms, percent
from .pictures import lag_picture, overlap_picture, stages_picture, step_pictures
from .provenance import model_lines, run_lines
from .rules_compression import hook_lines
from .run_report import RunReport
from .tables import (
    about_busbw,
    about_kinds,
    about_small,
    about_units,
    about_waits,
    bucket_columns,
    kind_columns,
    rank_columns,
    red_row,
    split_buckets,
    split_ranks,
    stages_of,
    unit_columns,
)
from .units import payload_bytes

_TEMPLATES = Path(__file__).parent / "templates"
STYLE = (_TEMPLATES / "report.css").read_text(encoding="utf-8")
"""The style sheet, whose classes the pictures have."""


def environment(*folders: Path) -> Environment:
    """Return what renders the templates of some folders, and the report's, which they include."""
    return Environment(
        loader=FileSystemLoader([*folders, _TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )


_PAGES = environment()
_PICTURES = (lag_picture, overlap_picture, stages_picture, step_pictures)
_NOTABLE = (red_row, split_buckets, split_ranks)
_TABLES = (
    model_lines,
    hook_lines,
    run_lines,
    about_busbw,
    about_small,
    about_waits,
    bucket_columns,
    rank_columns,
    stages_of,
    about_kinds,
    about_units,
    kind_columns,
    payload_bytes,
    unit_columns,
)
_PAGES.filters.update(bandwidth=bandwidth, mb=mb, ms=ms, percent=percent)
_PAGES.globals.update({called.__name__: called for called in (*_PICTURES, *_TABLES, *_NOTABLE)})


def page(report: RunReport) -> str:
    """Return the whole page."""
    return _PAGES.get_template("report.html.j2").render(report=report)
