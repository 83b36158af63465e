"""The tools of the order flow: a warehouse and a till, as plain functions without imports from Callboard."""

import hashlib
from typing import Any

STOCK = {"lamp": 40, "desk": 3, "chair": 12}
PRICES = {"lamp": 39.0, "desk": 349.0, "chair": 89.0}
BUSY = "chair"
"""The shelf that is always busy at the first attempt."""


def reserve(order: str, sku: str, count: float, attempt: float) -> dict[str, Any]:
    """Reserve ``count`` items for an order. Repeated calls for the same order have no further effect."""
    if sku == BUSY and attempt < 2:
        raise RuntimeError(f"the {sku} shelf is busy")
    left = STOCK.get(sku, 0)
    if count > left:
        raise ValueError(f"there are only {left} of {sku}")
    return {"sku": sku, "count": count, "price": PRICES[sku] * count, "reservation": _token(order, sku)}


def total(lines: list[dict[str, Any]]) -> dict[str, float]:
    """Add up the prices of an order's lines."""
    return {"total": sum(line["price"] for line in lines)}


def charge(order: str, card: str, total: float) -> dict[str, str]:
    """Charge a card, once per order."""
    if not card.startswith("4"):
        raise ValueError("the card was declined")
    return {"receipt": _token(order, card, str(total))}


def release(order: str) -> dict[str, str]:
    """Release all reservations of an order."""
    return {"released": order}


def _token(*parts: str) -> str:
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:8]
