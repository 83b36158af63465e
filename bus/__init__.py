"""The lowest layer: message types (events, effects, commands), their subjects, and the log that stores them."""
