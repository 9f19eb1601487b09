"""The job as one: what its ranks measured of each step, put together on the way to the hub.

drain --Batch--> RankSteps --> Gatherer of the rank, of its host -->
    JobSteps at the hub --> JobStepRecord (Prometheus of rank 0), JobSnapshot (hooktrace top)
"""
