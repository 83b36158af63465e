"""Admission: start messages and definitions looked at before anything begins."""
