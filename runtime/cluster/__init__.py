"""The cluster: which worker has which share of the work, and who leads."""
