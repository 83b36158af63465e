"""Runners: what each subtype does with what arrives at it. One for each, chosen by type and subtype."""
