"""Adapters: agents of other libraries in workflows, with their turns, tool calls and approvals as effects of the run.

One package per library; only it imports the library, which is an extra of the installation.
"""
