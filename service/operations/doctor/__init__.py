"""The doctor: checks of a deployment, by area, each with what it has found and what to do about it."""
