"""Models: one port (`model`), one file per provider."""
