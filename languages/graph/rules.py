"""Rules: changes of the interpreter's decisions. A run keeps the rules that were in force at its admission, so that its
log replays without a divergence. Pure.

Each constant is the first generation of runs that follow the rule; `RunInfo.rules` is the generation of a run.
"""

MEMBER_PATHS = 1
"""A path of names selects members of the data only."""

INCLUSIVE_RANGES = 2
"""The range of a merged source ends with its last item; a condition on a range has both ends in it."""

LASTING_SETTINGS = 3
"""The settings of an agent for its model's turns hold for all turns."""

PLAIN_OBJECTS = 4
"""An object is a schema only if it has no members other than a schema's; a schema without a value is an empty value."""

NO_CRITERION = 5
"""A FILTER without a criterion keeps all items, also in the mode ``exclude``."""

NULLS_LAST = 6
"""Items without a value to sort by come after those with one."""

WHOLE_INPUT = 7
"""A MANUAL trigger passes on all members of the input, since its table declares none that could hold them."""

CONTENT_MEMBERS = 8
"""``{{content}}`` in a text for people is the input's ``content``, if it has one; its members can be named directly."""

BOUNDED_WORK = 9
"""A node's work on its data is bounded: its steps, the text that it writes, and the depth of its output."""

EXACT_ANSWERS = 10
"""A person's answer decides by an option or a form; free text decides only if a model has classified it."""

TURN_PARAMETERS = 11
"""The parameters that an agent sets for its model's turns, such as ``top_p``, are passed on."""

INTERACTION_IDS = 12
"""The ``interaction_id`` in the output of a node that asks a person is unique across executions."""

OWN_ERROR_CODES = 13
"""If a node fails with an ``error_code``, its error has that code, and its details are not nested."""

OWN_TOKENS = 14
"""A node that asks a person sends its message with the token of its configuration, if it has one."""

WHOLE_TRIGGERS = 15
"""Triggers of all subtypes, not only MANUAL, pass on all members of the input."""

METHOD_BODIES = 16
"""HTTP_REQUEST sends the ``body`` of its input only with methods whose requests have a body."""

MEMORY_TEMPLATES = 17
"""Templates in the configurations of a MEMORY node that is wired into the graph are filled in."""

LAST_CALLS = 18
"""The tools that a model requests in the last turn of an agent are called. An agent that ends before its model is done
gets a warning."""

REVIEW_CONTROLS = 19
"""Reviewers, their roles, a consensus, evidence and a score that passes are demanded of the answers of people."""

REPEATED_LOOKS = 20
"""A WAIT looks at its condition repeatedly, and can leave out the data or refuse to be cancelled."""

NAMED_KEYS = 21
"""A node warns of configurations that have no effect, and an agent of pictures that are not sent."""

LATEST = 21
"""The generation of newly admitted runs."""
