"""What a benchmark gives: rows of one number with its spread and its budget."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import torch

from ..summary import percentile

__all__ = ["Row", "machine_facts", "row_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured number.

    ``value`` is the median of ``samples`` measurements, ``low`` and ``high`` are their 25th and
    75th percentile, all in ``unit``.  ``budget`` is the largest value that is ok, ``None`` where
    the number is only for information.  ``note`` says what the number is made of.
    """

    what: str
    value: float
    low: float
    high: float
    unit: str
    samples: int
    budget: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """``ok``, ``over``, or ``-`` without a budget."""
        if self.budget is None:
            return "-"
        return "ok" if self.value <= self.budget else "over"


def row_of(
    what: str, values: Sequence[float], unit: str, *, budget: float | None = None, note: str = ""
) -> Row:
    """Return the row of at least one measurement."""
    return Row(
        what=what,
        value=percentile(values, 0.5),
        low=percentile(values, 0.25),
        high=percentile(values, 0.75),
        unit=unit,
        samples=len(values),
        budget=budget,
        note=note,
    )


def machine_facts() -> dict[str, str]:
    """Return where and when the numbers were measured."""
    return {
        "cpu": _cpu_model(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0),
        "load": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "date": date.today().isoformat(),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
