"""The core: admission, the interpreter, runs, workers, the cluster, the client, budgets and the configuration."""
