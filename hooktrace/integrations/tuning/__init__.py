"""What runs inside of a job that ``hooktrace tune`` has started (``models.py``).

A start without hooks only looks: nothing of ours is registered, so that it tells what the job takes
as it is.
"""

MEASURED, WHERE = "_HOOKTRACE_TUNE", "_HOOKTRACE_TUNE_WHERE"
"""Of the environment of such a job: what is asked of it (``plan.py``), and what the paths of files
begin with that ranks of this machine write for it."""
