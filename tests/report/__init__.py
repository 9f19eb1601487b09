"""Tests of ``hooktrace.report``."""
