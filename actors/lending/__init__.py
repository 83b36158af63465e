"""Lending: the variables of a worker's environment and the network addresses that definitions may use."""
