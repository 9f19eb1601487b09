"""``hooktrace ctl``: a command to all ranks of a job that runs, and what each of them says.

channel.json beside the records, or --connect --client.py--> CommandResult --> a line a rank
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import msgspec

from ..ranks.channel.messages import HubAddress
from ..ranks.control import MOST_STEPS, Command, CommandResult, Verb, read_address, send_command
from ..records.errors import UsageError
from ..tracing.options import CHANNEL_TOKEN

VERBS = get_args(Verb)
_COUNTED = ("detail", "probe")


def run_ctl(words: Sequence[str], *, connect: str | None, as_json: bool) -> int:
    """Print what came of a command; returns 1 where a rank could not, or did not answer.

    Raises ``UsageError`` for a command that cannot work, and where the hub is not reached.
    """
    run, verb, number = _read(words, has_run=connect is None)
    command = _command(verb, number)
    outcome = send_command(address_of(run, connect), command)
    text = msgspec.json.encode(outcome).decode() if as_json else _told(outcome)
    sys.stdout.write(text + "\n")
    return int(bool(outcome.silent) or any(done.trouble for done in outcome.ranks.values()))


def address_of(run: Path | None, connect: str | None) -> HubAddress:
    """Return the hub's address: what a run's file says, or ``HOST:PORT`` and a token's variable."""
    if connect is None:
        if run is None:
            raise UsageError("which job? pass the directory of its records, or --connect HOST:PORT")
        return read_address(run)
    host, _, port = connect.rpartition(":")
    token = CHANNEL_TOKEN.read() or ""
    if not host or not port.isdecimal():
        raise UsageError(f"--connect {connect} is not HOST:PORT; pass for example 10.0.0.1:40123")
    try:
        bytes.fromhex(token or "none")
    except ValueError:
        raise UsageError(
            f"--connect needs the job's token in {CHANNEL_TOKEN.variable}; it is in "
            "channel.json beside the records of rank 0"
        ) from None
    return HubAddress(places=((host.strip("[]"), int(port)),), token=token)


def _read(words: Sequence[str], *, has_run: bool) -> tuple[Path | None, str, int | None]:
    """Return the run, the command and its number; the run is left out with --connect."""
    run = Path(words[0]) if has_run and words else None
    rest = list(words[1:] if has_run else words)
    if len(rest) > 2 or (len(rest) == 2 and not rest[1].isdecimal()):
        raise UsageError(f"{' '.join(rest)!r} is no command; pass for example: detail 20")
    verb = rest[0] if rest else "status"
    return run, verb, int(rest[1]) if len(rest) == 2 else None


def _command(verb: str, number: int | None) -> Command:
    if verb not in VERBS:
        raise UsageError(f"{verb!r} is no command; pass one of {', '.join(VERBS)}")
    if verb == "stacks":
        return Command(verb="stacks", rank=-1 if number is None else number)
    if verb not in _COUNTED:
        return Command(verb=verb)  # type: ignore[arg-type]
    if number is None or not 1 <= number <= MOST_STEPS:
        raise UsageError(f"{verb} takes a number of steps; pass 1 to {MOST_STEPS}")
    return Command(verb=verb, number=number)  # type: ignore[arg-type]


def _told(outcome: CommandResult) -> str:
    lines = [
        f"rank {rank}: {done.trouble or done.text}"
        for rank, done in outcome.ranks.items()
        if done.trouble or done.text
    ]
    for silent in outcome.silent:
        process = (
            f"process {silent.member.pid} on {silent.member.host}: " if silent.member.pid else ""
        )
        why = f" ({silent.why})" if silent.why else ""
        lines.append(f"rank {silent.rank} did not answer: {process}{silent.state}{why}")
    return "\n".join(lines)
