"""Tests of what is said of hangs."""
