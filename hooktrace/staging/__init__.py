"""One call of a hook: how a hook is written, what runs it, and what is stamped on the way.

    GradBucket --slots.py--> BucketSlot                  which model, rebuild and bucket
                                 |                       (a unit's: units.py)
    DDP --> StagedHook (hook.py) --> generator --yield--> Operation (collectives.py)
                 |                       ^                    |
                 |                  driver.py <---------------+--> groups.py, order.py
                 |                       +--stamps--> BucketCall (calls.py) --> Ring (ring.py)
                 +--> a plain hook, whose collectives process groups tell (group_hooks.py)

What enters is a hook's state and a bucket; what leaves is one future of the averaged gradients,
checked (hook_checks.py), and an ended call, for ``tracing`` to make records of.  Nothing here
formats or adds up.  ``job`` asks the job's store, where ``order`` waits for a group's ranks once.
"""
