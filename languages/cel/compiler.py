"""The compiler: turns an expression's syntax into closures, which each evaluation calls with a new scope."""

from collections.abc import Sequence

from msgspec import Struct, field

from callboard.languages.cel.arithmetic import negate, operator
from callboard.languages.cel.closures import (
    arithmetic,
    choose,
    constant,
    element,
    function_call,
    invert,
    listing,
    logic,
    mapping,
    member,
    path,
    presence,
    relation,
    root,
    root_member,
    unary,
)
from callboard.languages.cel.comprehensions import comprehension
from callboard.languages.cel.functions import CLOCK_FUNCTIONS, FUNCTIONS, VARIADIC
from callboard.languages.cel.scope import FIRST_SLOT, Run
from callboard.languages.cel.syntax import (
    Arithmetic,
    Call,
    Choose,
    Comprehension,
    Has,
    IndexAccess,
    ListOf,
    Literal,
    Logic,
    MapOf,
    Name,
    Node,
    Relation,
    Select,
    Unary,
)
from callboard.languages.cel.values import TYPE_VALUES, CelList, TypeValue
from callboard.lib.step_limits import CHARS_PER_STEP

CALL_STEPS = 3
"""Steps for a call, in addition to those for its arguments and those that the function counts."""


class Compiler(Struct):
    """Makes closures of nodes, and collects the names and steps of the expression."""

    roots: set[str] = field(default_factory=set[str])
    unknown_functions: set[str] = field(default_factory=set[str])
    slots: int = 0
    """The greatest number of comprehension variables that exist at once."""
    weight: int = 0
    """The steps of the compiled nodes, without those inside comprehensions, which count their own steps."""

    _variables: list[str] = field(default_factory=list[str])

    def compile(self, node: Node) -> Run:
        """Return the closure of a node."""
        self.weight += _weight(node)
        match node:
            case Literal():
                return constant(node.value)
            case Name():
                return self._name(node)
            case Select():
                return self._select(node)
            case Has():
                return presence(self.compile(node.operand), node.field)
            case IndexAccess():
                return element(self.compile(node.operand), self.compile(node.index))
            case Call():
                return self._call(node)
            case ListOf():
                return self._list(node)
            case MapOf():
                return mapping([(self.compile(key), self.compile(value)) for key, value in node.entries])
            case Unary():
                return unary(invert if node.operator == "!" else negate, self.compile(node.operand))
            case Arithmetic():
                rest = [(operator(symbol), self.compile(operand)) for symbol, operand in node.rest]
                return arithmetic(self.compile(node.first), rest)
            case Relation():
                return relation(node.operator, self.compile(node.left), self.compile(node.right), node.right)
            case Logic():
                return logic([self.compile(operand) for operand in node.operands], decisive=node.operator == "||")
            case Choose():
                return choose(self.compile(node.condition), self.compile(node.yes), self.compile(node.no))
            case Comprehension():
                return self._comprehension(node)

    # -- names ---------------------------------------------------------------------------------------------------------

    def _is_variable(self, node: Name) -> bool:
        return not node.absolute and node.name in self._variables

    def _name(self, node: Name) -> Run:
        name = node.name
        if self._is_variable(node):
            slot = FIRST_SLOT + len(self._variables) - 1 - self._variables[::-1].index(name)
            return lambda scope: scope[slot]
        named_type = TYPE_VALUES.get(name)
        if named_type is None:
            self.roots.add(name)
        return root(name, named_type)

    def _select(self, node: Select) -> Run:
        named_type = self._long_type(node)
        if named_type is not None:
            return constant(named_type)
        fields = [node.field]
        operand = node.operand
        while isinstance(operand, Select):
            fields.insert(0, operand.field)
            self.weight += _weight(operand)
            operand = operand.operand
        run = self.compile(operand)
        if len(fields) > 1:
            return path(run, fields)
        if isinstance(operand, Name) and not self._is_variable(operand):
            return root_member(operand.name, node.field)
        return member(run, node.field)

    def _long_type(self, node: Select) -> TypeValue | None:
        """Return the type that a dotted name such as ``google.protobuf.Timestamp`` means; None if it is not a type."""
        fields: list[str] = []
        operand: Node = node
        while isinstance(operand, Select):
            fields.insert(0, operand.field)
            operand = operand.operand
        if isinstance(operand, Name) and not self._is_variable(operand):
            return TYPE_VALUES.get(".".join((operand.name, *fields)))
        return None

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _call(self, node: Call) -> Run:
        name = node.function
        arguments: Sequence[Node] = node.arguments
        if node.target is None:
            clock = CLOCK_FUNCTIONS.get(name)
            return clock if clock and not arguments else self._plain(name, arguments)
        if isinstance(node.target, Name) and not self._is_variable(node.target):
            qualified = f"{node.target.name}.{name}"
            if qualified in FUNCTIONS.names:
                if qualified in VARIADIC and len(arguments) > 1:
                    arguments = [ListOf(node.at, arguments)]
                return self._plain(qualified, arguments)
            if node.target.name in FUNCTIONS.namespaces and name not in FUNCTIONS.member_names:
                return self._plain(qualified, arguments)
        if name not in FUNCTIONS.member_names:
            self.unknown_functions.add(name)
        runs = [self.compile(part) for part in (node.target, *arguments)]
        return function_call(name, FUNCTIONS.member(name, len(runs)), runs, member=True)

    def _plain(self, name: str, arguments: Sequence[Node]) -> Run:
        if name not in FUNCTIONS.names and name not in CLOCK_FUNCTIONS:
            self.unknown_functions.add(name)
        runs = [self.compile(argument) for argument in arguments]
        return function_call(name, FUNCTIONS.plain(name, len(runs)), runs, member=False)

    # -- containers ----------------------------------------------------------------------------------------------------

    def _list(self, node: ListOf) -> Run:
        if all(isinstance(item, Literal) for item in node.items):
            return constant(CelList(item.value for item in node.items if isinstance(item, Literal)))
        runs = [self.compile(item) for item in node.items]
        return listing(runs)

    def _comprehension(self, node: Comprehension) -> Run:
        source = self.compile(node.source)
        slot = FIRST_SLOT + len(self._variables)
        self._variables.append(node.variable)
        self.slots = max(self.slots, len(self._variables))
        outside, self.weight = self.weight, 1
        condition = self.compile(node.condition) if node.condition is not None else None
        body = self.compile(node.body)
        inside, self.weight = self.weight, outside
        self._variables.pop()
        return comprehension(node.macro, source, slot, inside, condition, body)


def _weight(node: Node) -> int:
    """Return the steps of a node without its children; literal texts in it add to them."""
    match node:
        case Literal() if isinstance(node.value, str | bytes):
            return 1 + len(node.value) // CHARS_PER_STEP
        case Select() | Has():
            return 1 + len(node.field) // CHARS_PER_STEP
        case Call():
            return CALL_STEPS
        case ListOf():
            return 1 + len(node.items)
        case MapOf():
            return 1 + 2 * len(node.entries)
        case _:
            return 1
