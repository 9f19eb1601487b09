"""How a hook is written and run: a generator that yields collectives.

    DDP --> hook (@staged) --> generator --yield--> operations --> process group
                                   ^                                    |
                                   +------------- driver <--------------+

What enters is a hook's state and a bucket; what leaves is one future of the averaged gradients.
"""
