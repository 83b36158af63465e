"""A nightly job: it counts the orders of the day before, and writes a report.

A schedule starts it, and gives the due time as the input ``due``. So a run that starts late reports on the same day.
"""

import asyncio
import datetime as dt
from pathlib import Path

from callboard import now, step, workflow

SHOPS = ("berlin", "paris")


@step(retries=3, timeout="1m")
async def count_orders(shop: str, day: dt.date) -> int:
    """Count the orders of a shop on a day."""
    return len(shop) + day.day


@step(retries=3)
def write_report(day: dt.date, orders: dict[str, int]) -> str:
    """Write the report of a day; again into the same file, if a worker dies meanwhile."""
    path = Path("reports") / f"{day}.md"
    path.parent.mkdir(exist_ok=True)
    lines = [f"- {shop}: {count}" for shop, count in orders.items()]
    path.write_text("\n".join([f"# Orders of {day}", "", *lines, ""]), encoding="utf-8")
    return str(path)


@workflow
async def nightly(due: dt.datetime | None = None) -> str:
    """Report on the orders of the day before; return the file of the report."""
    day = (due or now()).date() - dt.timedelta(days=1)
    counts = await asyncio.gather(*(count_orders(shop, day) for shop in SHOPS))
    return await write_report(day, dict(zip(SHOPS, counts, strict=True)))
