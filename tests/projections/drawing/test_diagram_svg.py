"""Drawings: measured text, a layout without collisions, SVG that is safe for any names."""

import itertools
import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.bus.events import NodeEnter, NodeExit, Outline, OutlineEdge, OutlineNode, Route
from callboard.languages.kit import kits
from callboard.projections.drawing import graph as graph_module
from callboard.projections.drawing.cards import LABEL_LINES_MAX, card, label
from callboard.projections.drawing.diagram import Diagram, DiagramFold, NodeColour
from callboard.projections.drawing.graph import BoxLink, Size, cut_into_layers
from callboard.projections.drawing.layout import Layout, Point, lay_out
from callboard.projections.drawing.mermaid import draw_mermaid
from callboard.projections.drawing.positions import order
from callboard.projections.drawing.scene import DEPTH_MAX, Placed, Scene, SceneLayout, parents
from callboard.projections.drawing.svg import DARK, DESCRIPTION_CHARS_MAX, LIGHT, describe, svg
from callboard.projections.drawing.text import ELLIPSIS, escape_xml, width_of, wrap_text
from callboard.projections.projection import fold
from callboard.surfaces.cli import exits
from tests.support.event_logs import CAKE, Log, cake, killed
from tests.support.workdir import INPUT, Workdir

SVG = "{http://www.w3.org/2000/svg}"

# -- text --------------------------------------------------------------------------------------------------------------


@given(st.text(max_size=200), st.integers(1, 4), st.floats(40, 300))
def test_wrapped_lines_fit_and_lose_only_blanks(text: str, lines_max: int, width: float) -> None:
    lines = wrap_text(text, 12, width, lines_max)
    assert len(lines) <= lines_max
    assert all(line for line in lines)
    assert all(width_of(line, 12) <= width or len(line) == 1 for line in lines)
    kept, whole = "".join("".join(lines).split()), "".join(text.split())
    if kept != whole:
        assert kept.endswith(ELLIPSIS)
        assert whole.startswith(kept.removesuffix(ELLIPSIS))


def test_long_words_break_at_capitals() -> None:
    assert wrap_text("System.GatherCompletionUnmet", 12, 120, 3) == ["System.Gather", "CompletionUnmet"]
    assert wrap_text("x" * 30, 10, 64, 9) == ["x" * 10] * 3


def test_wide_and_combining_characters_have_their_width() -> None:
    assert width_of("日本", 10) > width_of("ab", 10)
    assert width_of("e\u0301", 10) == width_of("e", 10)
    assert width_of("ab", 10, bold=True) > width_of("ab", 10)


@given(st.text(st.characters(exclude_categories=()), max_size=80))
def test_escaped_text_is_valid_xml(text: str) -> None:
    root = ElementTree.fromstring(f'<a b="{escape_xml(text)}">{escape_xml(text)}</a>')
    assert root.get("b") == (root.text or "")
    assert len(root.text or "") == len(text)


def test_a_card_adds_the_details_that_the_name_lacks() -> None:
    assert card(OutlineNode("look_up", "Look up", "node")).aside == ""
    assert card(OutlineNode("main/fetch", "Get it", "step", "http")).aside == "fetch · step · http"
    assert card(OutlineNode("main/fetch")).name == ["fetch"]
    assert card(OutlineNode("", "\n")).name == ["–"]


def test_a_label_has_a_count_above_one() -> None:
    assert label("good", 1).lines == ["good"]
    assert label("good", 3).lines == ["good · 3×"]
    assert label(" ", 2).lines == ["2×"]
    assert label("", 1).size == Size(0, 0)
    assert len(label("word " * 100, 0).lines) == LABEL_LINES_MAX


# -- layout ------------------------------------------------------------------------------------------------------------

BOX = Size(120, 60)
Rect = tuple[float, float, float, float]


def rect(centre: Point, size: Size, less: float = 0.0) -> Rect:
    half = size.width / 2 - less, size.height / 2 - less
    return centre.x - half[0], centre.y - half[1], centre.x + half[0], centre.y + half[1]


def are_apart(a: Rect, b: Rect) -> bool:
    return a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def inside(point: Point, box: Rect) -> bool:
    return box[0] < point.x < box[2] and box[1] < point.y < box[3]


def points_on(start: Point, steps: list[tuple[Point, ...]]) -> list[Point]:
    """Sample points along a route."""
    found = [start]
    for step in steps:
        a = found[-1]
        b, c, d = step if len(step) == 3 else (a, step[-1], step[-1])
        for t in (n / 8 for n in range(1, 9)):
            weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
            corners = list(zip(weights, (a, b, c, d), strict=True))
            found.append(Point(sum(w * p.x for w, p in corners), sum(w * p.y for w, p in corners)))
    return found


def assert_no_collision(layout: Layout, boxes: list[Size], links: list[BoxLink]) -> None:
    """Boxes and labels are apart; routes start and end at their boxes and cross no other box or foreign label."""
    rects = [rect(centre, size, 0.2) for centre, size in zip(layout.centres, layout.boxes, strict=True)]
    labels = {
        index: rect(route.label, links[index].label, 0.2) for index, route in enumerate(layout.routes) if route.label
    }
    assert set(labels) == {index for index, link in enumerate(links) if link.label.width}
    bounds = (-0.2, -0.2, layout.size.width + 0.2, layout.size.height + 0.2)
    for one in (*rects, *labels.values()):
        assert all(bounds[0] <= one[i] <= bounds[2] and bounds[1] <= one[i + 1] <= bounds[3] for i in (0, 2))
    for a, b in itertools.combinations([*rects, *labels.values()], 2):
        assert are_apart(a, b), (a, b)
    for index, (route, link) in enumerate(zip(layout.routes, links, strict=True)):
        way = points_on(route.start, route.steps)
        for end, box in ((way[0], link.source), (way[-1], link.target)):
            middle, size = layout.centres[box], layout.boxes[box]
            aside = abs(end.x - middle.x) - size.width / 2, abs(end.y - middle.y) - size.height / 2
            assert math.isclose(max(aside), 0, abs_tol=0.2), "an edge ends on the border of its box"
        for number, one in enumerate(rects):
            assert not any(inside(point, one) for point in way), (index, number)
        for other, one in labels.items():
            assert other == index or not any(inside(point, one) for point in way), (index, other)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Size], list[BoxLink]]:
    count = draw(st.integers(1, 9))
    sizes = st.sampled_from([BOX, Size(200, 44), Size(14, 14), Size(150, 96)])
    ends = st.integers(0, count - 1)
    labels = st.sampled_from([Size(0, 0), Size(60, 23), Size(180, 53)])
    links = draw(st.lists(st.builds(BoxLink, ends, ends, labels, st.sampled_from([2, 2, 4])), max_size=14))
    return draw(st.lists(sizes, min_size=count, max_size=count)), links


@given(graphs(), st.booleans())
def test_nothing_collides_in_any_graph(graph: tuple[list[Size], list[BoxLink]], across: bool) -> None:
    boxes, links = graph
    assert_no_collision(lay_out(boxes, links, across=across), boxes, links)


@given(graphs(), st.booleans())
def test_nothing_collides_with_edges_beside_the_rows(graph: tuple[list[Size], list[BoxLink]], across: bool) -> None:
    boxes, links = graph
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_module, "LONG_RANKS", 2)
        assert_no_collision(lay_out(boxes, links, across=across), boxes, links)


def test_a_very_long_edge_runs_beside_the_rows() -> None:
    count = graph_module.LONG_RANKS
    boxes = [BOX] * count
    links = [BoxLink(i, i + 1) for i in range(count - 1)] + [BoxLink(0, count - 1, Size(60, 23)), BoxLink(count - 2, 1)]
    layout = lay_out(boxes, links)
    assert_no_collision(layout, boxes, links)
    right = max(centre.x + BOX.width / 2 for centre in layout.centres)
    lanes = [max(point.x for point in points_on(route.start, route.steps)) for route in layout.routes[-2:]]
    assert all(lane > right + 20 for lane in lanes)
    assert abs(lanes[0] - lanes[1]) > 10
    cut = cut_into_layers(boxes, links)
    assert len(cut.vertices) < 3 * count, "the rows in between have no vertices of it"


def test_a_chain_is_straight_and_a_loop_is_not() -> None:
    boxes = [BOX] * 3
    links = [BoxLink(0, 1), BoxLink(1, 2, Size(60, 23)), BoxLink(2, 0, Size(60, 23))]
    down = lay_out(boxes, links)
    assert len({centre.x for centre in down.centres}) == 1
    assert [centre.y for centre in down.centres] == sorted(centre.y for centre in down.centres)
    for route in down.routes[:2]:
        assert len({point.x for point in points_on(route.start, route.steps)}) == 1
    right = down.centres[0].x + BOX.width / 2
    assert all(point.x >= right for point in points_on(down.routes[2].start, down.routes[2].steps))
    across = lay_out(boxes, links, across=True)
    assert len({centre.y for centre in across.centres}) == 1
    assert [centre.x for centre in across.centres] == sorted(centre.x for centre in across.centres)


def test_the_order_of_rows_avoids_crossings() -> None:
    """The lower boxes of two pairs are in reverse order."""
    links = [BoxLink(0, 4), BoxLink(1, 3), BoxLink(0, 2), BoxLink(2, 4), BoxLink(1, 2)]
    cut = cut_into_layers([BOX] * 5, links)
    order(cut)
    place = {vertex: position for row in cut.rows for position, vertex in enumerate(row)}
    by_rank: dict[int, list[tuple[int, int]]] = {}
    for piece in cut.segments:
        ends = place[piece.upper], place[piece.lower]
        by_rank.setdefault(cut.vertices[piece.upper].rank, []).append(ends)
    pairs = [pair for ends in by_rank.values() for pair in itertools.combinations(ends, 2)]
    assert not any((a[0] - b[0]) * (a[1] - b[1]) < 0 for a, b in pairs)


def test_large_and_long_graphs_are_drawn() -> None:
    count = 1500
    outline = Outline(
        [OutlineNode(f"n{i}") for i in range(count)], [OutlineEdge(f"n{i}", f"n{i + 1}") for i in range(count - 1)]
    )
    assert svg(Diagram(outline, {}, {}, "n0")).count('class="card"') == count


# -- levels ------------------------------------------------------------------------------------------------------------

FLOW = Outline(
    [
        OutlineNode(name)
        for name in (
            "main/fetch",
            "main/fetch:call/get",
            "main/fetch:call/check",
            "main/fan",
            "main/fan[0]/a",
            "main/fan[0]/b",
            "main/fan[1]/c",
            "main/fan[1]/d",
            "main/end",
        )
    ],
    [
        OutlineEdge("main/fetch", "main/fan"),
        OutlineEdge("main/fetch", "main/fetch:call/get", "calls"),
        OutlineEdge("main/fetch:call/get", "main/fetch:call/check"),
        OutlineEdge("main/fetch:call/check", "main/end", "out of the middle"),
        OutlineEdge("main/fan", "main/end"),
        OutlineEdge("main/fan", "main/fan[0]/a", "calls"),
        OutlineEdge("main/fan[0]/a", "main/fan[0]/b"),
        OutlineEdge("main/fan[1]/c", "main/fan[1]/d"),
        OutlineEdge("main/fan", "main/fetch", "catch Timeout"),
    ],
)


def scene_of(outline: Outline, *, across: bool = False) -> Scene:
    labels = [label(edge.when or "", 0) for edge in outline.edges]
    return SceneLayout(outline, outline.nodes[0].id, labels, across=across).scene()


def test_the_parents_of_nodes_follow_their_paths() -> None:
    assert parents([node.id for node in FLOW.nodes]) == {
        "main/fetch": None,
        "main/fetch:call/get": "main/fetch",
        "main/fetch:call/check": "main/fetch",
        "main/fan": None,
        "main/fan[0]": "main/fan",
        "main/fan[0]/a": "main/fan[0]",
        "main/fan[0]/b": "main/fan[0]",
        "main/fan[1]": "main/fan",
        "main/fan[1]/c": "main/fan[1]",
        "main/fan[1]/d": "main/fan[1]",
        "main/end": None,
    }
    assert parents(["x/a", "x/b", "y"]) == {"x": None, "x/a": "x", "x/b": "x", "y": None}
    assert parents(["x/a", "y/b"]) == {"x/a": None, "y/b": None}
    deep = parents(["/".join("a" * n) for n in range(1, 30)])
    assert list(deep.values()).count("/".join("a" * (DEPTH_MAX - 1))) > 20


@pytest.mark.parametrize("across", [False, True])
def test_a_box_contains_exactly_its_inner_nodes(across: bool) -> None:
    scene = scene_of(FLOW, across=across)
    found = {placed.key: placed for placed in scene.placed}
    above = parents([node.id for node in FLOW.nodes])
    assert set(found) == set(above)
    assert {key for key, placed in found.items() if placed.inner} == set(above.values()) - {None}
    assert {key for key, placed in found.items() if not placed.is_node} == {"main/fan[0]", "main/fan[1]"}

    def is_outside(outer: str, inner: str | None) -> bool:
        return inner is not None and (outer == inner or is_outside(outer, above[inner]))

    def rect_of(placed: Placed) -> Rect:
        return rect(placed.centre, placed.size)

    for a, b in itertools.permutations(found, 2):
        if is_outside(a, b):
            big, small = rect_of(found[a]), rect_of(found[b])
            assert all(big[i] <= small[i] for i in (0, 1))
            assert all(small[i] <= big[i] for i in (2, 3))
        elif not is_outside(b, a):
            assert are_apart(rect_of(found[a]), rect_of(found[b]))
    order_of = [placed.key for placed in scene.placed]
    assert all(order_of.index(outer) < order_of.index(inner) for inner, outer in above.items() if outer)
    assert sorted(one.edge for one in scene.drawn if one.edge is not None) == list(range(len(FLOW.edges)))


def test_a_level_has_one_begin_and_one_end_for_each_path() -> None:
    scene = scene_of(FLOW)
    begins = [mark.of or "" for mark in scene.marks if mark.after is None]
    assert sorted(begins) == ["", "main/fan", "main/fan[0]", "main/fan[1]", "main/fetch"]
    ends = {mark.after for mark in scene.marks if mark.after}
    assert {"main/end", "main/fan[0]/b", "main/fan[1]/d", "main/fetch:call/check"} <= ends
    assert "main/fan" not in ends


# -- svg ---------------------------------------------------------------------------------------------------------------


def parse_svg(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def groups_of(root: ElementTree.Element, word: str) -> list[ElementTree.Element]:
    return [one for one in root.iter(f"{SVG}g") if word in (one.get("class") or "").split()]


def class_of(root: ElementTree.Element, node: str) -> str:
    """The class of a node's group, found by its title."""
    for group in groups_of(root, "node"):
        title = group.find(f"{SVG}title")
        if title is not None and node in (title.text or "").split(" · "):
            return (group.get("class") or "").split()[-1]
    raise AssertionError(f"{node} is not drawn")


def test_a_definition_is_drawn_without_outcomes() -> None:
    root = parse_svg(svg(Diagram(CAKE, {}, {}, "bake"), title="Cake", subtitle="three nodes"))
    assert root.get("role") == "img"
    named = [one.text for name in ("title", "desc") if (one := root.find(f"{SVG}{name}")) is not None]
    assert named[0] == "Cake"
    assert named[1] is not None
    assert named[1].startswith("Begins at Bake. Bake leads to Taste.")
    ids = [root[0].get("id"), root[1].get("id")]
    assert root.get("aria-labelledby") == " ".join(str(one) for one in ids)
    assert {class_of(root, node.id) for node in CAKE.nodes} == {"plain"}
    assert len([one for one in groups_of(root, "edge") if one.find(f"{SVG}path") is not None]) == len(CAKE.edges) + 2
    said = [one.text for one in root.iter(f"{SVG}text")]
    assert {"Cake", "three nodes", "Bake", "too raw", "begins", "ends"} <= set(said)
    assert "way taken" not in said


def test_edges_of_failures_are_dotted() -> None:
    root = parse_svg(svg(Diagram(FLOW, {}, {}, "main/fetch")))
    (caught, _sign) = groups_of(root, "caught")
    assert "catch Timeout" in str(caught.findtext(f"{SVG}title"))
    assert "for failures" in {one.text for one in root.iter(f"{SVG}text")}


def test_a_run_is_coloured_and_what_was_not_reached_is_grey() -> None:
    root = parse_svg(svg(fold(DiagramFold(), killed().events)))
    assert class_of(root, "bake") == "current"
    assert class_of(root, "serve") == "unreached"
    said = {one.text for one in root.iter(f"{SVG}text")}
    assert {"under way", "not reached", "way not taken"} <= said
    assert "succeeded" not in said
    done = parse_svg(svg(fold(DiagramFold(), cake().events)))
    assert class_of(done, "serve") == "success"
    assert "2×" in {one.text for one in done.iter(f"{SVG}text")}
    taken = [group for group in groups_of(done, "taken") if "edge" in (group.get("class") or "")]
    assert len([one for one in taken if one.find(f"{SVG}path[@class='way']") is not None]) == len(CAKE.edges) + 2 + 1


@pytest.mark.parametrize("colour", ["success", "failed", "skipped", "cancelled", "current"])
def test_every_outcome_has_a_style_and_a_mark(colour: NodeColour) -> None:
    root = parse_svg(svg(Diagram(CAKE, {"bake": colour}, {}, "bake")))
    (group,) = [one for one in groups_of(root, colour) if "node" in (one.get("class") or "")]
    assert group.find(f".//{SVG}path[@class='mark']") is not None
    style = "".join(one.text or "" for one in root.iter(f"{SVG}style"))
    assert style.count(f".callboard .{colour} .card {{") >= 2, "one for light, one for dark"
    assert "prefers-color-scheme: dark" in style


def test_both_palettes_have_enough_contrast() -> None:
    """WCAG: text, lines and badges of outcomes have a contrast of 4.5 to their backgrounds, unreached nodes of 3."""

    def light(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(a: str, b: str) -> float:
        lights = sorted((light(a), light(b)))
        return (lights[1] + 0.05) / (lights[0] + 0.05)

    for palette in (LIGHT, DARK):
        for name, tint in palette.tints.items():
            assert contrast(tint.text, tint.fill) >= 4.5, name
            assert contrast(tint.text, palette.box) >= 4.5, name
            assert contrast(palette.soft, tint.fill) >= 4.5, name
            least = 3 if name == "unreached" else 4.5
            for ground in (tint.fill, palette.paper, palette.box):
                assert contrast(tint.line, ground) >= least, (name, ground)
        for text in (palette.ink, palette.soft):
            assert contrast(text, palette.paper) >= 4.5
        for ground in (palette.paper, palette.box):
            assert contrast(palette.edge, ground) >= 4.5
            assert contrast(palette.taken, ground) >= 4.5
            assert contrast(palette.faint, ground) >= 3


HOSTILE = [
    "<script>alert(1)</script>",
    "]]>",
    "\x00\x1b[31m\ud800",
    "&amp;",
    "",
    "\"'",
    "W" * 500,
    "日本語の名前 " * 20,
    "مرحبا",
    "a/b/c",
    "/",
    "a\u202eb",
    "x[0]:y.z",
]


def test_hostile_names_stay_text() -> None:
    nodes = [OutlineNode(name, name, name, name) for name in HOSTILE]
    edges = [OutlineEdge(a, b, a) for a, b in itertools.product(HOSTILE[:5], repeat=2)]
    text = svg(Diagram(Outline(nodes, edges), {}, {}, HOSTILE[0]), title=HOSTILE[0], subtitle=HOSTILE[2])
    text.encode()
    root = parse_svg(text)
    allowed = {"svg", "title", "desc", "style", "rect", "text", "g", "path", "circle"}
    assert {one.tag.removeprefix(SVG) for one in root.iter()} == allowed
    assert not any(name.startswith("on") or "href" in name for one in root.iter() for name in one.attrib)
    assert "http" not in text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert len(groups_of(root, "node")) == len(HOSTILE)


names = st.sampled_from(["a", "b", "a/x", "a/y", "a[0]/z", "a[1]/z", "c:call/q", "c", "d/e", "d/f", "d/f/g", ""])


@given(
    st.lists(names, unique=True),
    st.lists(st.builds(OutlineEdge, names, names, st.none() | st.text(max_size=40)), max_size=12),
    st.dictionaries(names, st.sampled_from(["success", "failed", "current"])),
    st.none() | names,
    st.sampled_from(["TB", "LR"]),
)
def test_any_outline_is_drawn(
    ids: list[str], edges: list[OutlineEdge], colours: dict[str, NodeColour], entry: str | None, direction: str
) -> None:
    diagram = Diagram(Outline([OutlineNode(name) for name in ids], edges), colours, {0: 2}, entry)
    text = svg(diagram, direction="LR" if direction == "LR" else "TB")
    root = parse_svg(text)
    assert len([one for one in groups_of(root, "node") if one.find(f"{SVG}rect") is not None]) >= len(ids)
    assert "nan" not in text
    assert "inf" not in re.sub(r"<(style|title|desc)[^>]*>.*?</\1>|<text[^>]*>.*?</text>", "", text, flags=re.DOTALL)
    assert svg(diagram, direction="LR" if direction == "LR" else "TB") == text


def test_a_description_is_cut() -> None:
    edges = [OutlineEdge("a", "a", "x" * 100)] * 100
    assert len(describe(Diagram(Outline([OutlineNode("a")], edges), {}, {}, "a"))) == DESCRIPTION_CHARS_MAX


# -- outcomes in outlines of paths -------------------------------------------------------------------------------------


def test_outcomes_of_subflows_are_found_by_path() -> None:
    outline = Outline(
        [
            OutlineNode("main/each"),
            OutlineNode("main/each[]/get"),
            OutlineNode("main/each[]/put"),
            OutlineNode("main/z"),
        ],
        [OutlineEdge("main/each[]/get", "main/each[]/put"), OutlineEdge("main/each", "main/z")],
    )
    log = Log().started(outline)
    for path, target in (("main/each[3]/get", "put"), ("main/each[3]/put", ""), ("main/each", "z")):
        name = path.rpartition("/")[2].partition("[")[0]
        log.add(NodeEnter(node=name), path, 1, 1)
        log.add(NodeExit("ok"), path, 1, 1)
        if target:
            log.add(Route(name, target), path, 1, 1)
    diagram = fold(DiagramFold(), log.events)
    assert diagram.colours == {"main/each[]/get": "success", "main/each[]/put": "success", "main/each": "success"}
    assert diagram.taken == {0: 1, 1: 1}


def test_mermaid_greys_unreached_nodes_of_a_run() -> None:
    assert "unreached" not in draw_mermaid(Diagram(CAKE, {}, {}, "bake"))
    text = draw_mermaid(fold(DiagramFold(), killed().events))
    assert "    class n_taste,n_serve unreached\n" in text
    assert "    classDef unreached " in text


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Workdir:
    """A folder with the triage and a run of it, ``r1``."""
    workdir = Workdir(tmp_path_factory.mktemp("drawn"))
    args = ("--input", INPUT, "--script", "flows/script.json", "--run-id", "r1")
    done = workdir.run("run", workdir.write_triage(), *args)
    assert done.exit_code == exits.OK, done.output
    return workdir


def test_a_definition_is_drawn_at_the_command_line(workdir: Workdir) -> None:
    root = parse_svg(workdir.run("diagram", "flows/triage.yaml", "--format", "svg").stdout)
    said = [one.text for one in root.iter(f"{SVG}text")]
    assert said[:2] == ["Triage", "workflow · 3 nodes"] or said[:2] == ["Triage", "triage · workflow · 3 nodes"]
    assert {class_of(root, node) for node in ("gather", "investigate", "note")} == {"plain"}
    titled = workdir.run("diagram", "flows/triage.yaml", "--format", "svg", "--title", "<Mine>").stdout
    assert "&lt;Mine&gt;" in titled


def test_a_run_is_drawn_at_the_command_line(workdir: Workdir) -> None:
    text = workdir.run("diagram", "r1", "--format", "svg").stdout
    root = parse_svg(text)
    assert {class_of(root, node) for node in ("gather", "investigate", "note")} == {"success"}
    assert any("run r1 · completed in" in (one.text or "") for one in root.iter(f"{SVG}text"))
    assert workdir.run("trace", "r1", "--format", "svg").stdout == text
    assert workdir.run("diagram", "r1").stdout == workdir.run("trace", "r1", "--format", "mermaid").stdout


def test_a_drawing_is_written_to_a_file(workdir: Workdir) -> None:
    said = workdir.run("diagram", "r1", "--format", "svg", "-o", "r1.svg")
    assert (said.stdout, said.stderr) == ("", "Wrote r1.svg\n")
    text = (workdir.folder / "r1.svg").read_text(encoding="utf-8")
    written = workdir.run_json("diagram", "r1", "--format", "svg", "-o", "again.svg")
    assert (written["svg"], written["output"], written["definition"]) == (text, "again.svg", "triage")
    failed = workdir.run("diagram", "r1", "-o", "nowhere/x.mmd", "--json")
    assert failed.exit_code == exits.FAILED
    assert json.loads(failed.stdout)["error"]["code"] == "file.unwritable"


def test_an_unknown_file_or_run_is_refused(workdir: Workdir) -> None:
    assert workdir.run("diagram", "none.yaml").exit_code == exits.USAGE
    assert workdir.run("diagram", "flows").exit_code == exits.USAGE
    said = workdir.run("diagram", "nobody", "--json")
    assert said.exit_code == exits.FAILED
    assert json.loads(said.stdout)["error"]["code"] == "run.unknown"


def test_a_definition_needs_no_store(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    assert workdir.run("diagram", workdir.write_triage(), "--format", "svg").exit_code == exits.OK
    assert not (tmp_path / ".callboard").exists()
    assert "workflow" in kits()
