"""What runs inside of a job that ``hooktrace tune`` has started.

    environment --plan.py--> Plan: how long, which model, which hooks, which limit of bucket sizes
    model made, or called first --watch.py--> Turns, of a DDP model or of one under fully_shard
      turns.py    its steps; whose turn is next, or the end: rank 0 says it, through torch's store
      hooks.py    what takes turns, and what its records say: hooks of DDP, reduce-scatters of FSDP2
    the end --> a file a rank --> commands/tune

A start without hooks only looks: nothing of ours is registered, so that it tells what the job takes
as it is.
"""
