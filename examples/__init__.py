"""The examples: workflows to run, and the demonstration that runs one."""
