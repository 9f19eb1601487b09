"""What hooktrace costs, how true its times are, and how fast its views are: ``make bench``.

    __main__.py: names -> groups --measured in processes of their own--> samples
                                --table--> rows: median, 95 % interval, budget, verdict

Processes and tables are those of ``hooktrace bench``.

Each number is a ratio or a difference of two things measured side by side in one run.  A row is
printed as soon as it is measured.  A benchmark reports; it never fails a build.

    drain.py        processor time of the drain and of each exporter (``backends.py``)
    whole_step.py   a training step on two ranks, traced over untraced; or checked
    sharded.py      a sharded model (FSDP2): a unit's collective, and a whole step
    wire.py         wire stages against torch.profiler
    long_run.py     a tracer that is left on
    programs.py     the import, the commands that answer at once, a large report
    hooks.py        each standard hook beside torch's own
    timeline.py     Comm Timeline on a million stages, in Chromium
    ranks.py        the hub of 10,000 ranks (``simulated_hosts.py``)
"""
