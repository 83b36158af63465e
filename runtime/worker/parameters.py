"""Parameters of turns: warn at a start of parameters that the provider of a turn does not support."""

from collections.abc import Sequence

from callboard.actors.models.catalog import Providers, resolve
from callboard.actors.models.model import ModelFailed
from callboard.bus.events import Problem
from callboard.bus.stand_ins import stands_in
from callboard.languages.language import TurnParameters

UNSUPPORTED = "model.parameter_unsupported"


def unsupported_parameters(wanted: Sequence[TurnParameters], default: str, providers: Providers) -> list[Problem]:
    """Return a warning for each place that sets an unsupported parameter; ``default`` is the run's model."""
    problems: list[Problem] = []
    if stands_in(default):  # it answers for every model that the definition names
        return problems
    for one in wanted:
        try:
            name, _model = resolve(one.model or default, providers)
        except ModelFailed:
            continue  # the turn fails with this error
        provider = providers[name]
        missing = [parameter for parameter in one.names if parameter not in provider.parameters]
        if missing and not provider.stands_in:
            message = f"the API of {name} does not support {', '.join(missing)}; turns are sent without"
            expected = f"one of {', '.join(sorted(provider.parameters))}"
            problems.append(Problem(UNSUPPORTED, message, one.where, expected=expected, severity="warning"))
    return problems
