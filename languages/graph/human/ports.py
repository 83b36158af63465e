"""The labels of answers to people's questions, which are also the ports at which the node's output leaves."""

CONFIRMED, REJECTED, UNRELATED, TIMEOUT = "confirmed", "rejected", "unrelated", "timeout"
