"""Comm Timeline: a tab of TensorBoard with every rank's buckets in one clock.

In go the record files under TensorBoard's logdir; out come JSON answers that the page draws.

    browser (static/)                TensorBoard's process, without torch
    main.js: view, keys, canvas <--- plugin.py           routes, JSON
                                       runs.py             the runs' files -> Run -> Scene (run/)
                                       level_of_detail.py  a stretch and a width -> what to draw
                                       bucket_detail.py    all numbers of one bucket
                                       search.py           what a text finds
                                       run_summary.py      slow steps, anomalies, late ranks
                                       heat_map.py         ranks by steps, and the run in bands

The page imports what both must agree on (stages, flags, values of a heat map) from
``static/definitions.js``, which ``plugin.py`` makes.  Each file of ``static/`` begins with the idea
that it holds.

TensorBoard finds it by the entry point group ``tensorboard_plugins``.
"""
