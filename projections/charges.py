"""What each event of a run has cost, by the prices of whoever looks."""

from callboard.bus.effects import ModelUsage, parts, used_by
from callboard.bus.events import ChildEnd, EffectResult, Event, ModelCall, ModelResult, Payload
from callboard.bus.prices import Cost, Prices, list_prices
from callboard.bus.stand_ins import model_name
from callboard.projections.intents import Opened, OpenIntents
from callboard.projections.parting import PartingFold
from callboard.projections.projection import known


class Charges:
    """Takes the events of one run in their order; the list prices count if no others are given."""

    def __init__(self, prices: Prices | None = None) -> None:
        self._prices = prices or list_prices()
        self._open = OpenIntents()
        self._parting = PartingFold()

    def of(self, event: Event) -> Cost | None:
        """Return what the next event has cost; None: it has used nothing, or it is a fork's origin that has paid."""
        payload = known(event)
        if payload is None:
            return None
        self._parting.apply(event, payload)
        closed = self._open.apply(event, payload)
        models = used_in(payload, closed)
        if self._parting.is_shared(event) or not any(one.counts for one in models):
            return None
        return self._prices.bill(models, event.time).cost


def used_in(payload: Payload, closed: Opened | None) -> list[ModelUsage]:
    """Return what an event says was used of which models; ``closed`` is the effect that it is the outcome of."""
    match payload:
        case ModelResult():
            return used_by(model_of(payload, closed), payload)
        case EffectResult(model=model) if model:
            return used_by(model, payload)
        case ChildEnd(usage=usage, models=models):
            return parts(usage, models)
        case _:
            return []


def model_of(result: ModelResult, closed: Opened | None) -> str:
    """Return the model that was asked, or what stood in for it."""
    if closed and isinstance(closed.payload, ModelCall):
        return model_name(closed.payload)
    return result.model or result.response_model or ""
