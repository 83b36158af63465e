"""Runners: a function for each subtype of node, which makes its outputs of its inputs."""
