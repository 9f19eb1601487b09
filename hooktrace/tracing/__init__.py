"""The pipeline of a process: from a traced hook's calls to records in memory and in exporters.

    trace(hook) --calls, records--> ring --> assembler.py --records--> recent.py: tracer.steps()
      trace.py, traced_hook.py      drain.py   steps.py         +----> export.py: exporters, losses
      sampling_plan.py              pipeline.py                 |
      hook_notices.py                          stage_times.py, call_records.py
    Tracer: tracer.py, state.py, models.py, settings.py, options.py
    its job: in_job.py, process_channel.py, hangs.py

What enters are hooks and their calls; what leaves are records.
"""
