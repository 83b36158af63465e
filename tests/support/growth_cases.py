"""Operations of each language on data of any size, each as a run: what `tests.e2e.test_growth` measures."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from json import dumps
from typing import Any

from tests.support.flows import call, flow, mock, returned, subflow
from tests.support.graphs import flow as flow_node
from tests.support.graphs import graph, node, step

ANSWERED = {"type": "success", "value": {"status": 200, "headers": {}, "body": '{"a": 1}'}}
HTTP = {"result": ANSWERED, "metadata": {}}


@dataclass(frozen=True)
class Case:
    """A run: its language, its definition, what it gets, and what answers for models and effects."""

    language: str
    definition: Any
    input: Any = None
    script: dict[str, Any] = field(default_factory=lambda: {"default": {"text": "ok"}})
    effects: dict[str, Any] = field(default_factory=dict[str, Any])

    def on(self, input: Any) -> "Case":
        """The same run with another input."""
        return replace(self, input=input)

    @property
    def source(self) -> str:
        return self.definition if isinstance(self.definition, str) else dumps(self.definition)


Make = Callable[[int], Case]
"""Makes the run of an operation on data of a size."""


def rows(n: int) -> list[dict[str, Any]]:
    return [{"id": i, "k": f"k{i % 7}", "v": i * 1.5, "far": {"away": {"b": i}}} for i in range(n)]


def _start() -> dict[str, Any]:
    """A trigger that passes on all that a start brings."""
    return node("t", "TRIGGER", "MANUAL")


# -- graph -------------------------------------------------------------------------------------------------------------


def _graph(type: str, subtype: str, **configurations: Any) -> Callable[[Any], Case]:
    written = graph([_start(), node("x", type, subtype, **configurations)], "t -> x")
    return lambda input: Case("graph", written, input)


def _transformation(operation: str, **configurations: Any) -> Make:
    made = _graph("ACTION", "DATA_TRANSFORMATION", operation=operation, **configurations)
    return lambda n: made(rows(n))


def _typed(transform_type: str, **configurations: Any) -> Make:
    made = _graph("ACTION", "DATA_TRANSFORMATION", transform_type=transform_type, **configurations)
    return lambda n: made(rows(n))


def _filter(**configurations: Any) -> Make:
    made = _graph("FLOW", "FILTER", filter_mode="include", filter_type="condition", **configurations)
    return lambda n: made(rows(n))


def _filter_in(n: int) -> Case:
    wanted = {"field": "id", "operator": "in", "value": list(range(n))}
    conditions = {"filter_mode": "include", "filter_type": "condition", "conditions": [wanted]}
    return _graph("FLOW", "FILTER", **conditions)(rows(n))


def _merge(**configurations: Any) -> Make:
    nodes = [_start(), step("a"), step("b"), flow_node("m", "MERGE", **configurations)]
    written = graph(nodes, "t -> a", "t -> b", "a -> m", "b -> m")
    return lambda n: Case("graph", written, rows(n))


def _if(expression: str, input: Callable[[int], Any]) -> Make:
    made = _graph("FLOW", "IF", condition_expression=expression)
    return lambda n: made(input(n))


def _templates(n: int) -> Case:
    body = {f"k{i}": f"{{{{ a }}}} and {{{{ b }}}}-{i}" for i in range(n)}
    made = _graph("ACTION", "HTTP_REQUEST", url="http://x/", method="POST", body=body)({"a": 1, "b": 2})
    return Case("graph", made.definition, made.input, effects={"provider": lambda _request: HTTP})


def _one_template(text: str) -> Make:
    def make(n: int) -> Case:
        written = graph(
            [_start(), node("x", "ACTION", "HTTP_REQUEST", url="http://x/" + text * n, method="GET")], "t -> x"
        )
        return Case("graph", written, {"a": 1}, effects={"provider": lambda _request: HTTP})

    return make


def _chain(n: int) -> Case:
    length = n // 10
    wires = ["t -> c0", *[f"c{i} -> c{i + 1}" for i in range(length - 1)]]
    return Case("graph", graph([_start(), *[step(f"c{i}") for i in range(length)]], *wires), {"a": 1})


def _fan_out(n: int) -> Case:
    written = graph([_start(), flow_node("l", "FOR_EACH"), step("s")], "t -> l", "l.iteration -> s")
    return Case("graph", written, list(range(n // 4)))


def _while(n: int) -> Case:
    written = {"loop_condition": f"iteration < {n}", "max_iterations": 100_000}
    return Case("graph", graph([_start(), flow_node("l", "WHILE", **written)], "t -> l"), {"a": 1})


def _split(n: int) -> Case:
    written = graph([_start(), flow_node("s", "SPLIT", by_key=[f"K{i}" for i in range(n)])], "t -> s")
    return Case("graph", written, {f"k{i}": i for i in range(n)})


GRAPH: dict[str, Make] = {
    "join": _transformation("join", join_key="id"),
    "join all": _transformation("join", join_key="k"),
    "join by an expression": _transformation("join", join_key="add(id, 1)"),
    "group_by": _transformation("group_by", group_by_fields=["k"]),
    "group_by each": _transformation("group_by", group_by_fields=["id", "far.away.b"]),
    "aggregate": _transformation("aggregate", group_by_fields=["k"], aggregation_functions={"v": "sum", "id": "max"}),
    "pivot": _transformation("pivot", pivot_config={"index": "k", "columns": "id", "values": "v"}),
    "sort items": _transformation("sort", sort_config={"field": "v", "direction": "desc"}),
    "flatten": _transformation("flatten"),
    "map": _transformation("map", field_mapping={"a": "id", "b": "far.away.b", "c": "add(id, 1)"}),
    "filter items": _transformation(
        "filter", filter_conditions=[{"field": "v", "operator": "greater_than", "value": 10}]
    ),
    "map by templates": _typed("template_map", template_map={"a": "x {{ id }} y", "b": "{{ far.away.b }}"}),
    "map by paths": _typed("mapping", field_mapping={"a": "id", "b": "v"}),
    "pick": _typed("path", path="far.away"),
    "SORT": lambda n: _graph("FLOW", "SORT", sort_field="v", order="desc")(rows(n)),
    "FILTER by an expression": _filter(expression="item.v > 10"),
    "FILTER by what contains": _filter(expression="contains($input.result, item)"),
    "FILTER by conditions": _filter(conditions=[{"field": "v", "operator": "greater_than", "value": 10}]),
    "FILTER by a pattern": _filter(conditions=[{"field": "k", "operator": "regex", "value": "^k(1|2)+$"}]),
    "FILTER by a list": _filter_in,
    "MERGE": _merge(merge_strategy="concatenate"),
    "MERGE of distinct items": _merge(merge_strategy="union", handle_duplicates="remove_duplicates"),
    "IF contains": _if("contains(data, 'zz')", lambda n: ["x" * 9] * n),
    "IF equal": _if("data == $input.result", rows),
    "IF every": _if("len($json[*].far[*]) > 1", rows),
    "SPLIT by keys": _split,
    "WHILE": _while,
    "templates": _templates,
    "a long template": _one_template("{{ a }}"),
    "a template that is never closed": _one_template("{{ a "),
    "a chain": _chain,
    "a fan-out": _fan_out,
}


# -- flow --------------------------------------------------------------------------------------------------------------


def _cel(expression: str, input: Callable[[int], Any]) -> Make:
    return lambda n: Case("flow", flow({"r": returned(f"{{{{ {expression} }}}}")}), input(n))


def _gather(target: dict[str, Any]) -> Make:
    step = {"action": "Gather", "over": "{{ step.input }}", "call": target, "next": "done"}
    return lambda n: Case("flow", flow({"g": step, "done": returned()}), list(range(n // 8)))


def _calls(n: int) -> Case:
    length = n // 20
    steps = {f"s{i}": call({"flow": subflow({"r": returned()})}, next=f"s{i + 1}") for i in range(length)}
    return Case("flow", flow({**steps, f"s{length}": returned()}), {"a": 1})


def _match(n: int) -> Case:
    cases = [{"when": f"{{{{ step.input.a == {i}.0 }}}}", "next": "done"} for i in range(1, n)]
    step = {"action": "Match", "cases": cases, "default": {"next": "done"}}
    return Case("flow", flow({"m": step, "done": returned()}), {"a": 0})


def _value(n: int) -> Case:
    return Case("flow", flow({"r": returned({f"k{i}": "{{ step.input.a }}" for i in range(n)})}), {"a": 1})


FLOW: dict[str, Make] = {
    "map": _cel("step.input.map(x, x * 2.0)", lambda n: list(range(n))),
    "filter": _cel("step.input.filter(x, x > 3.0)", lambda n: [1.5e300 * i for i in range(n)]),
    "sort": _cel("step.input.sort()", lambda n: list(range(n, 0, -1))),
    "distinct": _cel("step.input.distinct()", lambda n: [{"a": i} for i in range(n)]),
    "in": _cel("step.input.all(x, x in step.input)", lambda n: list(range(n))),
    "equal": _cel("step.input == step.input.map(x, x)", rows),
    "toJson": _cel("toJson(step.input)", rows),
    "a value that passes": _cel("step.input", rows),
    "texts of numbers": _cel("step.input.map(x, string(x))", lambda n: [1e300 + i for i in range(n)]),
    "an object of expressions": _value,
    "Gather": _gather(mock()),
    "Gather of flows": _gather({"flow": subflow({"r": returned()})}),
    "Match": _match,
    "calls": _calls,
}


# -- playbook and workflow ---------------------------------------------------------------------------------------------


def _playbook(body: Callable[[int], str], a: Callable[[int], str], answer: Callable[[int], str] | None = None) -> Make:
    def make(n: int) -> Case:
        source = f"# T\n\nd\n\n## INPUTS\n\n- `a` (string): x\n\n## STEP 1: one\n\n{body(n)}\n"
        script = {"default": {"text": answer(n) if answer is not None else "ok"}}
        return Case("playbook", source, {"a": a(n)}, script | {"tools": {"t": [{"output": "ok"}]}})

    return make


EXTRACT = 'go\n\n@output(o, extract:"a")'

PLAYBOOK: dict[str, Make] = {
    "placeholders": _playbook(lambda n: "{{ a }} {{a}} " * n, lambda _n: "x"),
    "placeholders without a value": _playbook(lambda n: " ".join(f"{{{{m{i}}}}}" for i in range(n)), lambda _n: "x"),
    "a large value": _playbook(lambda _n: "{{a}}" * 9, lambda n: "x" * 100 * n),
    "arguments": _playbook(lambda n: '@tool(con, t, {"x": "' + "{{a}}" * n + '"})', lambda _n: 'a"b'),
    "extraction": _playbook(lambda _n: EXTRACT, lambda _n: "x", lambda n: '{"a": [' + "1," * n + '1]} {"b": 2}'),
    "extraction from brackets": _playbook(lambda _n: EXTRACT, lambda _n: "x", lambda n: "[" * n),
    "extraction from braces": _playbook(lambda _n: EXTRACT, lambda _n: "x", lambda n: '{"a":1}' * n),
}


def _workflow(check: dict[str, Any]) -> Make:
    evaluator = {"name": "e", "kind": "value", "rule": {"output_matches": [check]}}
    one = {"name": "a", "instruction": "go", "skills": [], "eval": [evaluator], "output": {"type": "object"}}
    written = {"id": "w", "name": "w", "description": "d", "entry": "a", "nodes": {"a": one}, "edges": []}
    return lambda n: Case("workflow", written, {}, {"turns": {"a": [{"data": {"rows": rows(n)}}]}})


WORKFLOW: dict[str, Make] = {
    "equals": _workflow({"path": "any:rows[*].far.away.b", "equals": 7}),
    "any in": _workflow({"path": "any:rows[*].id", "in": [-1, -2, 3]}),
    "matches": _workflow({"path": "rows[*].k", "matches": "^k[0-9]$"}),
}

CASES: dict[str, Make] = {
    f"{language}: {name}": make
    for language, cases in (("graph", GRAPH), ("flow", FLOW), ("playbook", PLAYBOOK), ("workflow", WORKFLOW))
    for name, make in cases.items()
}
