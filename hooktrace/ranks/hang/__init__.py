"""Why ranks wait: what each knows of itself, and what follows from all of it.

    look.py          calls in flight --too old--> Suspicion --> the hub; --asked--> ModelStatus
      evidence.py, collectives.py   a rank's threads; what torch has issued and waits for
    diagnosis.py     two rounds of answers --> Hang, by a table: the first row that fits says why
      snapshot.py      where ranks wait, and each rank's part in that
    service.py       every process looks, answers, hears; the hub asks, and tells why, and its end

Nothing here waits for a collective, a store, a disk or a lock of the training thread's.
"""
