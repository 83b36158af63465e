"""What a definition means: one folder per language, each pure; `language` is the contract they all keep."""
