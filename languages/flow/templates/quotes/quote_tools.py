"""The dealers that the flow asks: a plain function. Nothing of Callboard is imported here."""

from typing import Any

PRICES: dict[str, dict[str, float]] = {
    "anna": {"lamp": 89.0, "desk": 349.0},
    "bert": {"lamp": 79.0},
    "cleo": {"lamp": 95.0, "desk": 310.0},
}
BUSY = "bert"
"""Who is always busy when asked for the first time."""


def quote(dealer: str, item: str, asked: float) -> dict[str, Any]:
    """Ask a dealer for the price of an item, null if it is not sold; ``asked`` counts how often that has been done."""
    if dealer == BUSY and asked < 2:
        raise RuntimeError(f"{dealer} is busy")
    return {"dealer": dealer, "price": PRICES.get(dealer, {}).get(item)}
