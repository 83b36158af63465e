"""The locks, from which environments are set up without resolving anything."""

import re
import tomllib

from tests.support.installed import needed
from tests.support.places import ROOT

IMAGE_EXTRAS = ("gemini", "openai", "otlp", "pgvector", "s3")
"""The extras of the image."""


def locked(*names: str) -> list[str]:
    """Return the packages in locks."""
    return [one for name in names for one in re.findall(r"^([\w.-]+)==", (ROOT / name).read_text(), re.MULTILINE)]


USERS = locked("requirements.lock")
IMAGE = locked("deploy/requirements.lock")
DEVELOPMENT = locked("requirements-dev.lock")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_a_package_is_in_one_lock_only() -> None:
    found = USERS + IMAGE + DEVELOPMENT
    assert sorted(set(found)) == sorted(found)
    assert "pytest" in DEVELOPMENT


def test_the_locks_have_all_that_is_needed() -> None:
    users: list[str] = PROJECT["dependencies"]
    extras: dict[str, list[str]] = PROJECT["optional-dependencies"]
    assert needed(users) <= set(USERS)
    of_image = needed([*users, *(one for name in IMAGE_EXTRAS for one in extras[name])])
    assert set(IMAGE) <= of_image <= {*USERS, *IMAGE}
    everything = {one for wanted in extras.values() for one in wanted if not one.startswith("callboard[")}
    assert needed([*users, *everything]) <= {*USERS, *IMAGE, *DEVELOPMENT}
