"""The command line, and what its commands run that needs the whole package.

    arguments --line.py--> one call of what a command is, a line on standard error where it fails
       demo/      trains a small language model, traced --> files, tables
       bench/     what hooktrace costs, and how true its times are --> rows
       top/       a job that runs, live; ctl.py: commands to one

In: arguments, and what they name.  Out: text, pages or JSON, and an exit code.  What only reads
record files is in ``analysis``, ``check`` in ``testing``, ``run`` in ``integrations``.
"""
