"""Why ranks wait: what each knows of itself, and what follows from all of it.

    watchdog.py      calls in flight --too old--> Suspicion --> the hub
    look.py          every rank, asked twice --> RankStatus (status.py)
      evidence.py      stacks and exceptions of its threads
      collectives.py   what torch has issued and waits for
    processes.py     ranks that do not answer: stopped, gone, or their interpreter is held
    silent.py        ranks that do not answer, and a hub that does not: by their processes
    diagnosis.py     two rounds of answers --view.py--> HangDiagnosis, a pure function
      missing.py       some ranks have not come to the call that the others wait in
      together.py      all have; issued.py: torch's lists of their collectives side by side
      idle.py          no call waits, but a collective that is no hook's
    hub.py           suspicions --> rounds --> diagnosis --> HangRecord, told to all ranks; its end

Nothing here waits for a collective, a store, a disk or a lock of the training thread's.
"""
