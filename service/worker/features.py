"""The features of a worker: what runs beside its runs, each for as long as the worker does."""

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from callboard.bus.nats.queue import Outbox
from callboard.runtime.client.connection import Connection
from callboard.runtime.worker.store_watch import StoreWatch
from callboard.runtime.worker.watchdog import Watchdog
from callboard.runtime.worker.worker import Worker
from callboard.service.worker.services import Services


class Feature(NamedTuple):
    """Something that ``run`` does until it is cancelled; it is started again if it fails."""

    name: str
    run: Callable[[], Awaitable[None]]


def features_of(
    worker: Worker,
    services: Services,
    connection: Connection,
    outbox: Outbox,
    watch: StoreWatch,
    notices: Callable[[], Counter[tuple[str, str]]],
    *,
    guest: bool,
) -> list[Feature]:
    """Return the features that a worker has by its configuration. The modules of others are not imported.

    ``notices`` returns the counts of this process's notices.
    """
    config = connection.config
    features = [
        Feature("store watch", watch.run),
        Feature("watchdog", Watchdog(lambda: services.pace.doing).run),
    ]
    if not guest:
        from callboard.features.schedules.publisher import SchedulePublisher
        from callboard.runtime.worker.purges import Purges

        features += [
            Feature("schedules", SchedulePublisher(connection.log, outbox, ack_wait_s=config.ack_wait_s).run),
            Feature("purges", Purges(connection.log, outbox, ack_wait_s=config.ack_wait_s).run),
        ]
    if services.allowances.names:
        from callboard.runtime.budgets.allowance_follower import AllowanceFollower

        features.append(Feature("budgets", AllowanceFollower(connection.log, services.allowances).run))
    if config.metrics_listen:
        from callboard.features.telemetry.metrics_endpoint import Scraped
        from callboard.service.worker.figures import Figures, unready

        figures = Figures(worker, connection.log, notices)
        scraped = Scraped(config.metrics_listen, figures.families, partial(unready, worker, connection))
        features += [Feature("figures", figures.run), Feature("metrics", scraped.run)]
    return features
