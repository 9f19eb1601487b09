"""``hooktrace check``: what is wrong with a communication hook, found by running it.

A table of scenarios (what gradients come) times a table of oracles (what is asked of the results):

    launch.py --HookSpec--> host.py --fork--> rank.py, once a rank and scenario
    launch.py <--CheckResult-- host.py <--CaseResult--+

    scenarios.py --gradients.py--> calls.py --result--> runs.py --> oracles.py --> Flaw

No scenario can hang the check: at a deadline its ranks write their stacks and are ended.
"""

from .launch import check_hook
from .result import CaseResult, CheckResult, Problem

__all__ = ["CaseResult", "CheckResult", "Problem", "check_hook"]
