"""What the training thread does: stamp and push, nothing else.

    DDP's bucket --layout--> BucketSlot      which model, generation and bucket is this?
                   calls  --> BucketCall     stamps of one hook call
                   ring   --> the drain      bounded; what does not fit is counted
                   clocks                    host clock, its wall-clock anchor, device events

What enters are DDP's buckets; what leaves are ended calls.  Nothing here formats, adds up or waits.
"""
