"""Made-up runs, and their summaries, rank by rank."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

from hooktrace.analysis.report import RunReport
from hooktrace.analysis.summaries import Job, Summary, report_of, summarize
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob, write_job


def summaries_of(job: SyntheticJob, folder: Path) -> tuple[list[Summary], Job]:
    """Return the summary of each rank of a job that is written first."""
    write_job(job, folder)
    return read(job, folder)


def read(job: SyntheticJob, folder: Path) -> tuple[list[Summary], Job]:
    """Return the summary of each rank that has files in a folder."""
    files = find_records(folder)
    shared = Job(job.run(0), job.run(0) if 0 in files else None)
    return [summarize([paths], shared) for paths in files.values()], shared


def report_on(job: SyntheticJob, folder: Path) -> RunReport:
    """Return the report of a job's merged summaries."""
    parts, shared = summaries_of(job, folder)
    return report_of(reduce(Summary.merged, parts), shared)
