"""Rules: what the interpreter decides otherwise than it did before. A run goes by those that there were when it was
admitted, so that what was recorded replays as it went. Pure.

Each name is the number of the first generation of runs that go by it; `RunInfo.rules` is that of a run.
"""

MEMBER_PATHS = 1
"""A path of names leads to members of the data and to nothing else."""

INCLUSIVE_RANGES = 2
"""The range of a merged source ends with its last item; a condition on a range has both ends in it."""

LASTING_SETTINGS = 3
"""What a node says of its model's turns holds for all of them."""

PLAIN_OBJECTS = 4
"""An object is taken for a schema only if it has a schema's members and no others; one without a value is empty."""

NO_CRITERION = 5
"""A FILTER without a criterion keeps all items, also one that excludes."""

NULLS_LAST = 6
"""What has no value to sort by is after what has one."""

WHOLE_INPUT = 7
"""What a start by hand brings continues whole: the table of MANUAL declares no member that could bear it."""

CONTENT_MEMBERS = 8
"""Texts for people are about the input's ``content``, where it has one, and find the members of that by their names."""

BOUNDED_WORK = 9
"""A node's work on its data has a bound: the steps it takes, the text it writes, the depth of what it puts out."""

EXACT_ANSWERS = 10
"""An answer of a person decides by an option or a form; free text only by what a model makes of it."""

TURN_PARAMETERS = 11
"""The parameters that an agent sets for its model's turns, such as ``top_p``, are passed on."""

INTERACTION_IDS = 12
"""The ``interaction_id`` in the output of a node that asks a person is unlike any in another execution."""

OWN_ERROR_CODES = 13
"""The error of a node that fails with an ``error_code`` of its own has that code, and its details are not nested."""

OWN_TOKENS = 14
"""A node that asks a person sends its message with the token of its own configuration, where it has one."""

WHOLE_TRIGGERS = 15
"""What a start brings continues whole from a trigger of any subtype, not only from MANUAL."""

METHOD_BODIES = 16
"""HTTP_REQUEST sends the ``body`` of its input only by methods whose requests have one."""

MEMORY_TEMPLATES = 17
"""Templates in the configurations of a MEMORY node that is in the graph are filled in."""

LAST_CALLS = 18
"""The tools that a model calls in the last turn of an agent are called, and an agent that ends before it is done is
warned of."""

LATEST = 18
"""The generation of the runs that are admitted now."""
