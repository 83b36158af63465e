"""A run: the actor that holds it at one worker while it is active, and what that actor is made of."""
