"""What if: the step time of a run that was not made, replayed from the records of one that was.

    record files of a calibrated run
      calibration   when each gradient is ready (compute_samples), what hooks cost on any bucket
                    (costs) and sends (hook_rules), where ranks run (machine)
      fit_network   latency and bandwidth, from the transfers of the run's own collectives
      step_work     one step of a choice: its buckets (bucketing: as DDP makes them), their rounds
      simulate      gradients ready -> training thread -> workers -> wire -> callbacks -> step done
      predict       many choices, each with an interval
      advise        the best of them, and whether they are worth it
      command       what `hooktrace whatif` and `hooktrace advise` print

From ``step_work`` on it is numbers in and numbers out: nothing reads a file, nothing imports torch.
"""
