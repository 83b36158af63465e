"""The client: how a program reaches a server and speaks to its runtime."""
