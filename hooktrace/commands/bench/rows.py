"""What a benchmark gives: rows of one number with its spread and its budget."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import torch

from ...records.summary import percentile

__all__ = ["Row", "machine_facts", "row_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured number.

    ``value`` is the median of ``samples`` measurements, ``low`` and ``high`` are their 25th and
    75th percentile, ``least`` and ``most`` the bounds of the median's 95 % confidence interval, all
    in ``unit``.  ``budget`` is the largest value that is ok, ``None`` where the number is only for
    information.  ``note`` says what the number is made of.
    """

    what: str
    value: float
    low: float
    high: float
    least: float
    most: float
    unit: str
    samples: int
    budget: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """``ok``, ``over``, ``noise`` where the median may as well be within, or ``-``."""
        if self.budget is None:
            return "-"
        if self.value <= self.budget:
            return "ok"
        return "noise" if self.least <= self.budget else "over"


def row_of(
    what: str, values: Sequence[float], unit: str, *, budget: float | None = None, note: str = ""
) -> Row:
    """Return the row of at least one measurement."""
    least, most = _interval_of_median(values)
    return Row(
        what=what,
        value=percentile(values, 0.5),
        low=percentile(values, 0.25),
        high=percentile(values, 0.75),
        least=least,
        most=most,
        unit=unit,
        samples=len(values),
        budget=budget,
        note=note,
    )


def _interval_of_median(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the median, whatever the distribution.

    A value is below the median with probability 1/2, so the number of those below it is binomial:
    between n/2 - 1.96 sqrt(n)/2 and n/2 + 1.96 sqrt(n)/2 of n in 95 cases of 100 (H. A. David,
    H. N. Nagaraja, Order Statistics, 2003, section 7.1).  The samples are taken as independent.
    """
    ordered = sorted(values)
    below = max(0, math.floor((len(ordered) - 1.96 * math.sqrt(len(ordered))) / 2) - 1)
    return ordered[below], ordered[len(ordered) - 1 - below]


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
