"""``hooktrace tune``: which hook and which bucket_cap_mb, measured on the user's own job.

    tune.py --starts.py, job.py--> the command, some times: what each of its ranks wrote (Seen)
            --measure.py--> each setting's step time, with an interval
            --show.py--> a table, a sentence, the lines to write

What runs inside of the job is ``integrations/tuning``.
"""
