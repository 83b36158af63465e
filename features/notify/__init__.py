"""Notify: send notices about events of runs to people and programs, by rules of the configuration, once each."""
