"""What hooktrace costs, how true its times are, and how fast its views are: ``make bench``.

    __main__.py: names -> groups --measured in processes of their own--> samples
                                --table--> rows: median, 95 % interval, budget, verdict

Each number is a ratio or a difference of two things measured side by side in one run.  A row is
printed as soon as it is measured.  A benchmark reports; it never fails a build.
"""
