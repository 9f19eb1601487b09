"""Tests of ``hooktrace.analysis.timeline``."""
