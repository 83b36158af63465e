"""Ids of child runs: derived from the parent run and from the effect that starts the child.

Every worker therefore computes the same id for the same child.
"""

import hmac
import uuid


def child_id(run: str, key: str) -> str:
    """Return the id of the child run that a run starts with the effect ``key``."""
    return str(uuid.uuid5(uuid.UUID(hmac.digest(b"callboard", run.encode(), "sha256").hex()[:32]), key))
