"""Why ranks wait: what each knows of itself, and what follows from all of it.

    watchdog.py      calls in flight --too old--> Suspicion --> the hub
    look.py          every rank, asked twice --> RankStatus (status.py)
      evidence.py      stacks and exceptions of its threads
      collectives.py   what torch has issued and waits for
    diagnosis.py     two rounds of answers --> Hang, by a table: the first row that fits says why
      snapshot.py      the call in which ranks wait, and each rank's part in it
        issued.py        torch's lists of their collectives side by side
        silent.py        ranks that do not answer, and a hub that does not: by their processes
        late.py          ranks that have not come to the call
        together.py      all have come to it
    hub.py           suspicions --> rounds --> diagnosis --> HangRecord, told to all ranks; its end

Nothing here waits for a collective, a store, a disk or a lock of the training thread's.
"""
