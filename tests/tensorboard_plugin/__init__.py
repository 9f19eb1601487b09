"""Tests of ``hooktrace.tensorboard_plugin``'s server half."""
