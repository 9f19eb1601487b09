"""This process among the job's ranks: what it tells the others, how its clock stands.

native_calls.py    calls that may take long, on threads of their own
private_group.py   a process group that no hook meets --> probes, the check of a hook
channel/           one connection a host between the ranks: clocks, questions, news
  hang/              why ranks wait for others --> HangRecord, told to all of them
  control.py         a command to all ranks --> what each of them did
  whole_job/         the steps of all ranks as one --> JobStepRecord, hooktrace top
"""
