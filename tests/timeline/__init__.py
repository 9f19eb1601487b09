"""Tests of ``hooktrace.timeline``."""
