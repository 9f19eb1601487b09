"""From the record files of all ranks to answers.

    record files --timeline--> columns in one clock --> report, export, TensorBoard tab

Nothing here imports torch.
"""
