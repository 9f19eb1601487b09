"""The pipeline of a process: from a traced hook's stamps to records in exporters.

    trace(hook) --calls--> ring --> drain thread: assembler --records--> recent, exporters

What enters are hooks and their calls; what leaves are records.
"""
