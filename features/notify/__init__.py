"""Notify: people and programs are told of what happens to runs, by rules of the configuration; once each."""
