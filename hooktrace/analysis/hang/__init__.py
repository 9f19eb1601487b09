"""``hooktrace hang``: what held a job up, from the files of the ranks that could still write.

``command.py`` is what the command line calls; ``view.py`` makes a document of the Run's hangs, and
of where each rank's files end.  Where no hang was recorded the files' ends say how
far each rank came, and nothing more is said.
"""

from __future__ import annotations
