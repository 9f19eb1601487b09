"""Control of a job while it runs: a command to all ranks, and what each of them says of it.

hooktrace ctl, tracer.command --client.py--> the hub --commands.py--> all ranks --> their tracers
channel.json, beside the records --address.py--> where the hub is, and its token
"""
