"""Admission: checks start messages, commands and definitions before any of them takes effect."""
