"""Functions of `shaping.yaml`."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

CENT = Decimal("0.01")
TAX = {"de": Decimal("0.19"), "fr": Decimal("0.20")}


def order_lines(order: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One row for each item of an order, with its price including tax."""
    tax = TAX[order["country"]]
    for number, cents in enumerate(order["prices"], start=1):
        total = (Decimal(cents) / 100 * (1 + tax)).quantize(CENT)
        yield {"order_id": order["id"], "line": number, "total": total}
