"""The table of all functions that an expression can call: core CEL, those of MWL, and the five extension profiles."""

from callboard.languages.cel.conversions import CONVERSIONS
from callboard.languages.cel.core_functions import CORE
from callboard.languages.cel.encoders_profile import ENCODERS
from callboard.languages.cel.json_functions import from_json, to_json
from callboard.languages.cel.lists_profile import LISTS_PROFILE
from callboard.languages.cel.math_profile import MATH
from callboard.languages.cel.overloads import Counted, Declarations, Functions, count_parsing
from callboard.languages.cel.scope import BUDGET, CLOCK, Run, Scope
from callboard.languages.cel.sets_profile import SETS
from callboard.languages.cel.strings_profile import STRINGS
from callboard.languages.cel.temporal import iso8601_text, of_datetime, read_iso8601
from callboard.languages.cel.values import Timestamp

MWL: Declarations = {
    "toJson(any)": Counted(to_json),
    "fromJson(string)": Counted(from_json),
    "durationToIso8601(duration)": iso8601_text,
    "durationFromIso8601(string)": count_parsing(read_iso8601),
}
"""The functions of MWL (expressions, "MWL functions") except for the two that read the clock."""

FUNCTIONS = Functions(CORE, CONVERSIONS, MWL, STRINGS, LISTS_PROFILE, SETS, ENCODERS, MATH)

VARIADIC = frozenset(("math.greatest", "math.least"))
"""Functions with any number of arguments; several arguments are passed as a list."""


WALL_TIME_STEPS = 1_000
"""Steps for reading the wall clock, because each reading is recorded."""


def _now(scope: Scope) -> Timestamp:
    return of_datetime(scope[CLOCK].now())


def _wall_time(scope: Scope) -> Timestamp:
    scope[BUDGET].take(WALL_TIME_STEPS)
    return of_datetime(scope[CLOCK].wall_time())


CLOCK_FUNCTIONS: dict[str, Run] = {"now": _now, "wallTime": _wall_time}
"""The functions that read the clock; they have no arguments."""
