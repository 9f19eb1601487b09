"""The ``hooktrace`` command: ``run`` gives the process to a script, the rest is ``commands.line``.

``run`` imports nothing that the script might not, least of all the command line's library.
"""

from __future__ import annotations

import sys
from typing import Any


def start() -> None:
    """Do what the process's arguments say."""
    if sys.argv[1:2] == ["run"] and sys.argv[2:] not in ([], ["--help"]):
        from .integrations.run import run

        run(sys.argv[2:])
    else:
        from .commands.line import main

        main(prog_name="hooktrace")


def __getattr__(name: str) -> Any:
    if name != "main":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .commands.line import main

    return main


if __name__ == "__main__":
    start()
