"""``hooktrace tune``: which hook and which bucket_cap_mb, measured on the user's own job.

run.py --job.py--> the command, some times: integrations/tuning --results.py--> what to write
"""
