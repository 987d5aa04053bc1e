"""Benchmarks: each compares, within one run, ours with the ceiling and with the obvious alternative."""
