"""Lending: which variables of a worker's environment, and which network addresses, definitions may use."""
