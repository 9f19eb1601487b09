"""Tests of the exporters, each against a real backend."""
