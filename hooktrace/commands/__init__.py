"""What ``hooktrace demo`` and ``hooktrace bench`` run: training jobs on this machine."""
