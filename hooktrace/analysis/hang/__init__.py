"""``hooktrace hang``: what held a job up, from the files of the ranks that could still write.

    Run --run.hangs--> Hang of each ----------------------------------------+
     +--ends.py--> RankEnd of each rank: its last whole step, whether closed +--view.py--> document,
                                                                                             or JSON

``command.py`` is what the command line calls.  Where no hang was recorded the files' ends say how
far each rank came, and nothing more is said.
"""

from __future__ import annotations
