"""From the record files of all ranks to answers.

    record files --run--> a RankTrack of columns for each rank, all in rank 0's clock: Run
                                  |
                                  +--> report              findings and facts: text, page, JSON
                                  +--> frames              data frames for notebooks
                                  +--> perfetto            one trace file of all ranks
                                  +--> tensorboard_plugin  the Comm Timeline tab

Nothing here imports torch.
"""
