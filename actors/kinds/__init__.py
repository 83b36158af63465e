"""Kinds of effects, one per file, for any language that asks for them."""
