"""The pipeline of a process: from a traced hook's calls to records in memory and in exporters.

    trace(hook) --calls, records--> ring --> drain: assembler --records--> recent: tracer.steps()
      trace.py, traced_hook.py               drain.py  steps.py   |        recent.py
      sampling_plan.py                    pipeline.py  queue_model.py, sent.py
      hook_notices.py                                  stage_times.py  +-> fan_out: exporters
    Tracer: tracer.py, state.py, models.py, settings.py, options.py; losses.py: the ledger

What enters are hooks and their calls; what leaves are records.
"""
