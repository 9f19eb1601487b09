"""``hooktrace hang``: what held a job up, from the files of the ranks that could still write.

    Run --run.hangs--> Hang of each ------------------------------------+
     |--ends.py--> RankEnd of each file: its last whole step, when, whether it was closed
     +--ends.py--> EarlierHang of each run before, in the same directory |
                                                                         v
                                                     view.py: document, or JSON

``command.py`` is what the command line calls.  Where no hang was recorded the files' ends say how
far each rank came, and nothing more is said.
"""

from __future__ import annotations
