"""The dealers that the flow asks: a plain function, which imports nothing from Callboard."""

from typing import Any

PRICES: dict[str, dict[str, float]] = {
    "anna": {"lamp": 89.0, "desk": 349.0},
    "bert": {"lamp": 79.0},
    "cleo": {"lamp": 95.0, "desk": 310.0},
}
BUSY = "bert"
"""The dealer who is always busy at the first request."""


def quote(dealer: str, item: str, asked: float) -> dict[str, Any]:
    """Ask a dealer for the price of an item, null if the dealer does not sell it; ``asked`` counts the requests."""
    if dealer == BUSY and asked < 2:
        raise RuntimeError(f"{dealer} is busy")
    return {"dealer": dealer, "price": PRICES.get(dealer, {}).get(item)}
