"""What the training thread does: stamp and push, nothing else.

    GradBucket --layout.py--> BucketSlot (buckets.py)   which model, generation and bucket
                                 |
                              BucketCall (calls.py)     stamps of one hook call; they never raise
                                 |    ^-- device_call.py, device_events.py  the device's own times
                                 v
                              Ring (ring.py)            bounded; what does not fit is counted

What enters are DDP's buckets; what leaves are ended calls, for ``tracing`` to make records of.
Nothing here formats, adds up or waits.
"""
