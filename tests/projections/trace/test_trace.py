"""The neutral trace, its tree, and its text forms: diagram, waterfall, table."""

import re

import pytest

from callboard.bus.events import EffectCall, NodeEnter, NodeExit, NodeOutcome, Outline, OutlineEdge, OutlineNode
from callboard.projections.drawing.diagram import Diagram, DiagramFold
from callboard.projections.drawing.mermaid import draw_mermaid
from callboard.projections.projection import fold
from callboard.projections.trace.node_tree import above
from callboard.projections.trace.text_renderings import duration_text, step_rows, step_table, waterfall
from callboard.projections.trace.trace import TraceFold
from callboard.projections.trace.tree import Node
from tests.support.event_logs import CAKE, Log, at, cake, everything, killed


def _tree(node: Node) -> dict[str, object]:
    return {f"{child.path}#{child.iteration}": _tree(child) for child in node.children}


@pytest.mark.parametrize(
    ("path", "paths"),
    [
        ("", []),
        ("bake", []),
        ("main/fetch", ["main"]),
        ("main/fan-out[3]/fetch", ["main/fan-out[3]", "main/fan-out", "main"]),
        ("main/v1.2:call.mw0.onEntry", ["main/v1.2:call.mw0", "main/v1.2:call", "main/v1.2", "main"]),
        ("loop[3]/body[1]/inner", ["loop[3]/body[1]", "loop[3]/body", "loop[3]", "loop"]),
    ],
)
def test_the_paths_above_a_path(path: str, paths: list[str]) -> None:
    assert list(above(path)) == paths


def test_nested_nodes_belong_to_the_nearest_execution_above() -> None:
    trace = fold(TraceFold(), everything().events)
    assert _tree(trace.root) == {"main#1": {"main/fan#1": {"main/fan[0]#1": {}, "main/fan[1]#1": {}}}}


def test_children_belong_to_the_open_iteration() -> None:
    log = Log().started()
    for visit in (1, 2):
        log.enter("a", visit)
        log.enter("a/b", visit)
        log.exit("a/b", visit)
        log.exit("a", visit)
    assert _tree(fold(TraceFold(), log.events).root) == {"a#1": {"a/b#1": {}}, "a#2": {"a/b#2": {}}}


def test_effects_of_nodes_that_are_not_entered_belong_to_the_node_above() -> None:
    log = Log().started()
    log.enter("main", kind="frame")
    log.add(EffectCall("provider"), "main/fetch:call", 1, 1, "call.0")
    log.add(EffectCall("source"), "", 0, 0, "source.0")
    root = fold(TraceFold(), log.events).root
    assert [effect.kind for effect in root.effects] == ["source"]
    assert [(effect.kind, effect.key) for effect in root.children[0].effects] == [
        ("provider", "main/fetch:call#1.1!call.0")
    ]


def test_nodes_have_their_times_effects_routes_and_retries() -> None:
    log = cake(retry=True)
    trace = fold(TraceFold(), log.events)
    bakes = [node for node in trace.root.children if node.path == "bake"]
    assert [(node.iteration, len(node.attempts), len(node.effects)) for node in bakes] == [(1, 0, 1), (2, 1, 2)]
    first = bakes[0]
    assert (first.entered_at, first.exited_at, first.outcome) == (at(4), at(7), "ok")
    effect = first.effects[0]
    assert (effect.kind, effect.name, effect.outcome) == ("model", "opus", "ok")
    assert (effect.started_at, effect.ended_at) == (at(5), at(6))
    assert [(step.source, step.target) for step in first.routes] == [("bake", "taste")]
    tastes = [node for node in trace.root.children if node.path == "taste"]
    assert [effect.key for effect in tastes[0].effects] == ["taste#1.1!turn.0", "taste#1.1!route"]
    assert (trace.root.outcome, trace.root.exited_at) == ("completed", log.events[-1].time)
    assert trace.sources["nodes.bake.instruction"]["content"] == "Bake."


def test_effects_open_across_a_claim_count_their_executions() -> None:
    trace = fold(TraceFold(), everything().events)
    main = trace.root.children[0]
    fan = main.children[0].children[0]
    assert [(effect.kind, effect.executions, effect.outcome) for effect in fan.effects] == [
        ("model", 2, "ok"),
        ("tool", 1, "failed"),
    ]
    assert [note.message for note in fan.progress] == ["half way"]
    assert [(note.code, note.fields) for note in fan.warnings] == [("missing", ["a"])]
    assert [(effect.kind, effect.outcome) for effect in main.effects] == [
        ("timer", "ok"),
        ("human", "ok"),
        ("signal", "ok"),
        ("child", "ok"),
        ("child", "cancelled"),
    ]
    assert trace.claims == 3


# -- text --------------------------------------------------------------------------------------------------------------


def test_the_table_has_a_row_per_node_execution() -> None:
    rows = step_rows(fold(TraceFold(), cake(retry=True).events))
    assert [(row.path, row.iteration, row.attempts, row.outcome) for row in rows] == [
        ("bake", 1, 1, "ok"),
        ("taste", 1, 1, "ok"),
        ("bake", 2, 2, "ok"),
        ("taste", 2, 1, "ok"),
        ("serve", 1, 1, "ok"),
    ]
    assert rows[2].usage.input_tokens == 200
    assert rows[0].duration_s == pytest.approx(0.3)
    lines = step_table(rows).splitlines()
    assert lines[0].split()[:4] == ["node", "iteration", "attempts", "outcome"]
    assert lines[2].split() == ["bake", "1", "1", "ok", "300", "ms", "1", "100/20"]


@pytest.mark.parametrize("width", [40, 80, 133])
def test_waterfall_bars_share_one_scale(width: int) -> None:
    log = Log().started()
    log.enter("first")
    log.wait(4)
    log.exit("first")
    log.enter("second")
    log.wait(4)
    log.exit("second")
    lines = waterfall(fold(TraceFold(), log.ended().events), width).splitlines()
    assert [len(line) for line in lines] == [width] * 3
    run, first, second = (line.partition("▕")[2] for line in lines)
    assert [line.partition("▕")[0].strip() for line in lines] == ["cake", "first", "second"]
    filled = [[index for index, mark in enumerate(bar) if mark in "▏▎▍▌▋▊▉█"] for bar in (run, first, second)]
    assert filled[0][0] == 0
    assert filled[1][0] > 0
    assert filled[1][-1] <= filled[2][0]
    assert filled[2][-1] <= filled[0][-1]
    assert first.endswith("500 ms")


def test_a_waterfall_marks_open_nodes_and_effects() -> None:
    log = Log().started()
    log.enter("a")
    log.ask_model("a")
    lines = waterfall(fold(TraceFold(), log.events)).splitlines()
    assert [line.endswith("…") for line in lines] == [True, True, True]
    assert lines[2].startswith("    model opus")
    assert waterfall(fold(TraceFold(), [])) == ""


def test_a_waterfall_names_the_branches_of_a_fan_out() -> None:
    lines = waterfall(fold(TraceFold(), everything().events)).splitlines()
    assert [line.split("▕")[0].strip() for line in lines if "fan" in line] == ["fan", "fan[0]", "fan[1]"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "…"), (0.0123, "12 ms"), (3.4, "3.40 s"), (302, "5 min 02 s"), (7500, "2 h 05 min"), (273_600, "3 d 04 h")],
)
def test_durations_are_written_in_suitable_units(seconds: float | None, text: str) -> None:
    assert duration_text(seconds) == text


def test_the_diagram_of_the_worked_example() -> None:
    text = draw_mermaid(fold(DiagramFold(), cake().events), direction="LR", title='The "cake"')
    assert text.splitlines()[:4] == ["---", 'title: "The \\"cake\\""', "---", "flowchart LR"]
    for line in (
        'n_bake(["▶ Bake"])',
        'n_taste["Taste"]',
        'n_bake ==>|"taken 2×"| n_taste',
        'n_taste ==>|"too raw · taken 1×"| n_bake',
        'n_taste ==>|"done · taken 1×"| n_serve',
        "class n_bake,n_taste,n_serve success",
    ):
        assert f"    {line}\n" in text
    assert text.count("stroke-dasharray:5 4") == 0


def test_a_diagram_of_an_open_run_dashes_untaken_edges() -> None:
    text = draw_mermaid(fold(DiagramFold(), killed().events))
    assert "class n_bake current" in text
    assert text.count("stroke-dasharray:5 4") == 3
    assert '    n_taste -->|"too raw"| n_bake\n' in text


def test_a_diagram_of_a_new_run_has_an_entry_and_no_styles() -> None:
    log = Log()
    log.accepted(Outline(CAKE.nodes[::-1], [OutlineEdge("bake", "taste"), OutlineEdge("taste", "serve")]))
    text = draw_mermaid(fold(DiagramFold(), log.events))
    assert 'n_bake(["▶ Bake"])' in text
    assert "linkStyle" not in text


def test_outcomes_colour_nodes_by_path_node_or_last_id() -> None:
    outline = Outline([OutlineNode("main/a"), OutlineNode("b"), OutlineNode("c"), OutlineNode("d")])
    log = Log().started(outline)
    ended: list[tuple[str, str, NodeOutcome]] = [
        ("main/a", "", "failed"),
        ("x", "b", "skipped"),
        ("main/c", "", "cancelled"),
    ]
    for path, node, outcome in ended:
        log.add(NodeEnter(node=node), path, 1, 1)
        log.add(NodeExit(outcome), path, 1, 1)
    log.enter("not-shown")
    diagram = fold(DiagramFold(), log.events)
    assert diagram.colours == {"main/a": "failed", "b": "skipped", "c": "cancelled"}
    assert diagram.entry == "main/a"


NASTY = ["a-b", "a_b", "a b", "a.b", "a", "A", "end", "é", "e\u0301", "a__b", "a_x2d_b", 'q"[|]', "", "n_a"]


def test_ids_are_distinct_and_labels_are_escaped() -> None:
    outline = Outline(
        nodes=[OutlineNode(node) for node in NASTY], edges=[OutlineEdge("a", "A", 'say "[done]" | <b>stop</b>\nnow')]
    )
    text = draw_mermaid(Diagram(outline, {}, {}, None))
    ids = re.findall(r"^    (\w+)\[", text, re.MULTILINE)
    assert len(set(ids)) == len(NASTY)
    assert all(re.fullmatch(r"n_[A-Za-z0-9_]*", name) for name in ids)
    for line in text.splitlines()[1:]:
        label = line[line.index('"') + 1 : line.rindex('"')]
        assert label.strip()
        assert not set(label.replace("<br/>", "")) & set('"[]|<>`')
    assert "#34;#91;done#93;#34; #124; #60;b#62;" in text
