"""The report as one HTML file: nothing is loaded, nothing runs; all names are escaped.

RunReport --templates/report.html.j2--> head, tiles, findings, pictures, tables, what is missing
"""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ...records.units import bandwidth, mb, ms, percent
from .pictures import error_picture, lag_picture, overlap_picture, stages_picture
from .run_report import RunReport
from .step_picture import step_pictures
from .tables import bucket_columns, rank_columns, stages_of

_PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    keep_trailing_newline=True,
)
_PICTURES = (error_picture, lag_picture, overlap_picture, stages_picture, step_pictures)
_TABLES = (bucket_columns, rank_columns, stages_of)
_PAGES.filters.update(bandwidth=bandwidth, mb=mb, ms=ms, percent=percent)
_PAGES.globals.update({called.__name__: called for called in (*_PICTURES, *_TABLES)})


def page(report: RunReport) -> str:
    """Return the whole page."""
    return _PAGES.get_template("report.html.j2").render(report=report)
