"""The stage: admission, workers, runs, the client, the command line, and the one place that wires everything."""
