"""One token-guarded channel between the ranks, beside collectives and torch's store.

In: questions, news and commands of hooktrace's own parts.  Out: their answers from all ranks, also
while collectives, the store and other threads are stuck; offsets of clocks.

    hub (rank 0) <--one connection a host-- first rank of a host <-- the other ranks there

    channel.py             this process's thread, and what others ask of it
      membership.py        stays in the tree: the hub, and one's own host
        meeting.py         where to find each other at first: the job's store, addresses
        parent.py          the connection to the parent          clock.py   offsets by pings
      node.py, children.py questions down, answers and news up, notices down
      connection.py        bounded messages                      messages.py  what they are
        handshake.py       before them: both ends know the token

The transport is asyncio's, messages are msgspec's.  pyzmq and gRPC were not taken: the number of
descriptors must be bounded whoever connects, a fork (a data loader's workers) must be harmless, and
pings need a stamp at arrival.
"""
