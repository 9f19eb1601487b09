"""One token-guarded channel between the ranks, beside collectives and torch's store.

    hub (rank 0) <--one connection a host-- first rank of a host <-- the other ranks there

    channel.py             this process's thread, and what others ask of it
      parent.py            stays in the tree: the hub, and one's own host
        meeting.py         where to find each other at first: the job's store, addresses
        clock.py           how far this clock is from the hub's, by pings to the parent
      node.py, children.py questions down, answers and news up, notices down
        process.py         who a rank is, and whether its process runs
      connection.py        bounded messages                      messages.py  what they are
        handshake.py       before them: both ends know the token

The transport is asyncio's: with pyzmq or gRPC descriptors were not bounded whoever connects, a fork
were not harmless, and pings had no stamp at arrival.
"""
