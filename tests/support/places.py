"""Folders of the repository, for tests that read its files."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
