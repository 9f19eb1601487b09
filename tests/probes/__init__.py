"""Tests of hooktrace/probes: pure logic, without ranks."""
