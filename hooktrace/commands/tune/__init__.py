"""``hooktrace tune``: which hook and which bucket_cap_mb, measured on the user's own job.

run.py --job.py--> the command, some times --measure.py--> settings --show.py--> what to write

What runs inside of the job is ``integrations/tuning``.
"""
