"""Tests of ``hooktrace.analysis.tensorboard_plugin``'s server half."""
