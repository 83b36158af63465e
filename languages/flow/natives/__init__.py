"""Call providers that are made of the stage's own effects: they replay, park and time out as the run itself does."""
