"""Contracts of the call providers that Callboard brings beyond the specification's, in the namespace ``callboard``."""
