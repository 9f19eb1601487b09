"""hooktrace for scripts that do not name it: every DDP model of a process is traced.

    hooktrace run train.py        run.py ----------------------+
    opentelemetry-instrument ...  opentelemetry.py ------------+--> start.begin(), without torch
    a child of one of these       python_path/sitecustomize.py +      |
                                                                      v
    the script imports torch --> its DDP is patched --> models.py: a Dispatcher for each model
      --> its traced hook, as the script registers it, or else DDP's own average
      remedy.py: torch's hooks that fail on gloo, and HOOKTRACE_FIX
    the process ends --> ending.py: a summary on rank 0, or why there is none

In: environment variables and a script.  Out: what a tracer gives, and a few lines on standard
error.  The script's results, exceptions and exit code are its own.
"""
