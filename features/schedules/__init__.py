"""Schedules: runs that are started at times of their own, kept in the log and fired by its server."""
