"""The command line: options, and a call; each subcommand's work is in its own package.

    root       the command: its subcommands in order, refusals, exit codes
    training   demo, ctl, top, run: what trains, or speaks to a job that does
    records    report, compare, hang, export: what reads record files
    hooks      hooks, check, bench: about hooks, and what hooktrace costs

Whatever a subcommand needs is imported when it is called, so that help and lists answer at once.
"""
