"""``hooktrace export``: the picture that Perfetto and ``chrome://tracing`` show of a run.

    Run --tied: who passes which bucket on to whom--> TiedRank of each
             --rank_events.py: one rank's rows, slices and marks--> events
             --export.py: one rank after another--> file, gzip as it is written

What enters are ranks in one clock; what leaves is Chrome trace-event JSON, strict, object form.
"""

from __future__ import annotations

from .export import Exported, export

__all__ = ["Exported", "export"]
