"""Runs public examples of the SDKs that have adapters, with the one line that makes each of them durable.

``python -m tests.maintenance.sdk_examples SDK CHECKOUT [WORD…]`` takes the examples that are listed for an SDK, or
those whose name contains one of the words, from a checkout of its repository. Each is performed as a run on an embedded
server, with scripted models, and is replayed after each of its outcomes. The command prints a line for each example.
"""
