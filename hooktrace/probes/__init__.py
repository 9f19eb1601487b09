"""Probes: what is looked at on some steps only, and what that says of the hook.

In: a hook call that is about to begin (``CallStart``), and its future.  Out: ``ProbeResult`` for
the ring, of which the drain makes an ``ErrorRecord``, a ``SkewRecord`` and anomalies.

    every hook call        step >= model.sample_step?           one comparison, else nothing
      step_sampler.py      which of these looks at this call:
        model.py           the error against other ranks
          agreement.py       from which step on, as all ranks agree; are they all here?
          schedule.py        which steps, and which bucket of them
          probe.py           clone -> lossless average on a group of its own --+
                             the hook itself ----------------------------------+--> compare.py
                             DDP gets the hook's result when both are there <--+
        other_sampler.py   the job's other collectives
        debug_checks.py    finite values, memory held or changed, on every step
    drain
      probe_result.py      ProbeResult -> ErrorRecord, SkewRecord
      diagnosis.py         ProbeResult, BucketRecord -> anomalies
        weights.py           samples of a result and of all ranks' gradients -> what it is of them
        factors.py           the same factor in several probes?

The only collectives that hooktrace adds are here: on a checked step, for the checked bucket, an
all-reduce of its size (of 32 bits an element or more) and an all-gather of 16 kB, which also says
when this rank had the bucket ready, and a checksum of the result that was checked before: if the
replicas still agree is known one check later.  Nothing waits: the hook's future is passed on when
the reference has arrived too.  The result is not touched.  On a device the numbers are made there
and copied to the host without waiting, and the reference goes over the hook's own group
(device_group.py), where all ranks consent to it.
"""
