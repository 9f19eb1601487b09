"""Tests of ``hooktrace.analysis.run``."""
