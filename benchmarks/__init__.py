"""Benchmarks: figures for one machine in one minute, given as ratios to what the same machine's JetStream does raw."""
