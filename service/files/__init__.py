"""Local files: definitions, skills, inputs and events that a command reads or writes."""
