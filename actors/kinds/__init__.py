"""Kinds of effects, one a file: each is carried out for whatever language asks for it."""
