"""This process among the job's ranks: who it is, and how its clock stands to rank 0's.

torch's store --> job: run id, rank          TCP pings --> clock_sync: ClockRecord
"""
