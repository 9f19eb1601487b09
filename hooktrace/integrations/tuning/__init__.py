"""What runs inside of a job that ``hooktrace tune`` has started (``models.py``).

A start without hooks only looks: nothing of ours is registered, so that it tells what the job takes
as it is.
"""
