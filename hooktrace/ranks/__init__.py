"""This process among the job's ranks: who it is, what it tells the others, how its clock stands.

In: torch's process group and the launcher's environment.  Out: ``RunInfo``, ``ClockRecord``.

    job.py             rank, run id, restarts --> RunInfo; key-value store; how a process ends well
      private_group.py   a process group that no hook meets --> probes, the check of a hook
      clock_sync.py      rank 0: clock_server.py <--TCP pings-- others --> ClockRecord
"""
