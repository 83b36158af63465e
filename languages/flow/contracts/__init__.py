"""Contracts of the call providers that Callboard adds to the specification's, in the namespace ``callboard``."""
