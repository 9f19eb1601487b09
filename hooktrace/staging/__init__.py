"""How a hook is written and run: a generator that yields collectives.

    DDP --> StagedHook (hook.py) --> generator --yield--> Operation (operation.py, collectives.py)
                 |                       ^                    |
                 |              driver.py, runs.py <----------+--> process group (groups.py)
                 |                       |
                 |      turns.py, sequencer.py: calls with several rounds, one after another
                 |      round_groups.py: that group;  streams.py: memory across a yield
                 +--> compiled.py: the same on one parameter, in a compiled graph

What enters is a hook's state and a bucket; what leaves is one future of the averaged gradients,
checked (result_check.py).  ``composition`` runs hooks inside hooks, an opaque one as one operation
(hook_call.py); ``gradient_kinds`` and ``effects`` say what a hook can work with and may change.
"""
