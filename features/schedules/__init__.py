"""Schedules: starts of runs at configured times, stored in the log and triggered by its server."""
