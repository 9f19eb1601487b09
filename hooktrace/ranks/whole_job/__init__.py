"""The job as one: what its ranks measured of each step, put together on the way to the hub.

    batches of the drain --RankSteps--> Gatherer of the rank, of its host -->
        JobSteps at the hub --> JobStepRecord (Prometheus of rank 0), JobSnapshot (hooktrace top)

``gatherer.py`` has what goes up, and the plan that comes down: how often, and which steps;
``snapshot.py`` what one looks at: the last steps, and the ranks by how late they come.
"""
