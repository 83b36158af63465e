"""People in the loop: how a node asks a person, which answers count, and what they decide."""
