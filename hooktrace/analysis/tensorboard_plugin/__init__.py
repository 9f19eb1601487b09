"""Comm Timeline: a tab of TensorBoard with every rank's buckets in one clock.

    browser (static/)                 TensorBoard's process, without torch
    main.js: view, keys, canvas  <--  plugin.py: routes, JSON
                                        runs.py:   which runs there are, and that files are inside
                                        cache.py:  a run's files -> Timeline, read as they grow
                                        scene.py:  one model of a Timeline -> sorted arrays, rows.py
                                        lod.py:    a stretch of time and a width -> what to draw
                                        detail.py: all numbers of one bucket
                                        steps.py:  slowest steps, anomalies, rebuilds, late ranks

TensorBoard finds it by the entry point group ``tensorboard_plugins``.
"""
