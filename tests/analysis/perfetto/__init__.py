"""Tests of ``hooktrace.analysis.report``."""
