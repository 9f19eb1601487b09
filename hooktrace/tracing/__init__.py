"""The pipeline of a process: from a traced hook's calls to records in memory and in exporters.

    trace(hook) --calls, records--> ring --> drain.py --records--> memory: tracer.steps()
      trace.py, traced_hook.py             assembler.py            +--> exporters
      hookless.py                          stage_times.py, call_records.py
    Tracer: tracer.py, options.py; its job: process_channel.py

What enters are hooks and their calls; what leaves are records.
"""
