"""``hooktrace bench``: what hooktrace costs and how true its times are, measured on this machine.

    groups.py: names -> modules --run()--> samples, in processes of their own (ranks.py)
                                   --table.py--> rows: median, 95 % interval, budget, verdict

Each number is a ratio or a difference of two things measured side by side in one run.  A row is
printed as soon as it is measured.  A benchmark reports; it never fails a build.

    per_bucket.py       added to forward and backward, beside the least that any tracer adds
    training_thread.py  the training thread's part of it, and the driver's beside torch's hooks
    drain.py            processor time of the drain and of each exporter
    whole_step.py       a training step on two ranks, traced over untraced
    wire.py             wire stages against torch.profiler
    probes.py           a probe of the compression error, and its share of training time
    memory.py           a tracer that is left on
    record_file.py      record files that are left on
    start_up.py         the import, and the commands that answer at once
    hooks.py            each standard hook beside torch's own (``peers.py``); on demand
    timeline.py         Comm Timeline on a million stages, in Chromium; on demand
    large_report.py     a report on the files of 64 ranks; on demand
"""

from __future__ import annotations

from .command import run

__all__ = ["run"]
