"""What is seen of a rank's process: real ones that stop, die, and whose number is used again."""

from __future__ import annotations

import signal
import subprocess

from msgspec.structs import replace

from hooktrace.ranks.channel.process import state_of
from tests.ranks.channel.jobs import member_of, wait_for


def test_states() -> None:
    """Running, stopped, running again, gone, also while its parent has not heard of it."""
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        known = member_of(sleeper.pid)
        assert state_of(known) == "running"
        sleeper.send_signal(signal.SIGSTOP)
        assert wait_for(lambda: state_of(known) == "stopped")
        sleeper.send_signal(signal.SIGCONT)
        assert wait_for(lambda: state_of(known) == "running")
        sleeper.kill()
        assert wait_for(lambda: state_of(known) == "gone")
        sleeper.wait()
        assert state_of(known) == "gone"


def test_a_number_that_is_used_again_or_is_of_another_container() -> None:
    """It is another process that began at another time, or one that is not seen from here."""
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        known = member_of(sleeper.pid)
        assert state_of(replace(known, began=known.began - 1)) == "gone"
        assert state_of(replace(known, pids=known.pids + 1)) == "unknown"
        assert state_of(replace(known, began=0)) == "unknown"
        sleeper.kill()
