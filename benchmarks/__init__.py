"""Benchmarks: figures for one machine in one minute, as ratios to raw JetStream on the same machine."""
