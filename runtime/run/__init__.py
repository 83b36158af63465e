"""Runs: the actor that performs a run at one worker while it is active, and the parts of that actor."""
