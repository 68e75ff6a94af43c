"""Benchmarks: each prints ratios that come from one run, so that a noisy machine does not matter."""
