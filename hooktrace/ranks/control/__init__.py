"""Control of a job while it runs: from a terminal, or from any of its ranks.

In: a command.  Out: what each rank says of it, and which ranks did not.

    hooktrace ctl, tracer.job --client.py--> the hub --hub.py--> all ranks --> their tracers
    channel.json, beside the records --address.py--> where the hub is, and its token

A command is one of a few, with a number (``messages.py``): nothing is executed or unpickled.
"""
