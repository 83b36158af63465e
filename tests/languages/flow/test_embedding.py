"""Which strings of a flow are expressions and which are literals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.languages.cel.errors import CelSyntaxError
from callboard.languages.cel.parser import parse
from callboard.languages.cel.template_strings import expression_body, expressions_in
from tests.support import cel_sources


@pytest.mark.parametrize(
    "body",
    [
        " vars.a ",
        "vars.a",
        "",
        " \n vars.a \n ",
        " {'a': {'b': 1}} ",
        " {'a': {'b': 1}}",
        "{'a': {'b': 1}}",
        " {'a': 1}['a'] + {} ",
        " '}}' + '{{' ",
        ' "}}" ',
        " '\\'}} ' ",
        ' "\\\\" + "}}" ',
        ' r"\\" + "}} {{" ',
        " R'}}\\' ",
        ' b"}}" + bR"}}\\" ',
        ' """ }} " }} """ ',
        " '''it's }} ''' ",
        ' r"""\\"""  + " }} " ',
        " a // }} \n ",
        " '//' + b ",
        " `odd}}name` ",
    ],
)
def test_a_pair_that_spans_the_whole_string_makes_an_expression(body: str) -> None:
    assert expression_body("{{" + body + "}}") == body


@pytest.mark.parametrize("body", [" 'abc ", ' """ }} " ', " {'a': 1 ", " ( ", " a b ", ' """\' }} '])
def test_a_body_that_is_not_cel_is_still_an_expression(body: str) -> None:
    assert expression_body("{{" + body + "}}") == body
    with pytest.raises(CelSyntaxError):
        parse(body)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        "{{",
        "}}",
        "{{}",
        "{ a }",
        "{{ a",
        "a }}",
        " {{ a }}",
        "{{ a }} ",
        "{{ a }}\n",
        "say {{ a }}",
        "{{ a }} and {{ b }}",
        "{{ step.input }} is a literal }}",
        "{{}}}",
        "{{ 'a' }} '}}",
        "{{ {'a': 1} }} }}",
    ],
)
def test_other_texts_are_literals(text: str) -> None:
    assert expression_body(text) is None


@given(st.text("{}'\"\\r/\nb a`", max_size=24))
def test_any_text_is_the_body_or_a_literal(text: str) -> None:
    body = expression_body("{{" + text + "}}")
    assert body in (None, text)


@given(source=cel_sources.EXPRESSIONS, other=cel_sources.EXPRESSIONS)
def test_every_cel_expression_can_be_embedded_and_two_of_them_are_a_literal(source: str, other: str) -> None:
    assert expression_body("{{ " + source + " }}") == f" {source} "
    assert expression_body("{{ " + source + "\n}} {{ " + other + " }}") is None


def test_expressions_are_found_at_string_leaves_and_not_in_keys() -> None:
    value = {"a": "{{ 1 }}", "{{ key }}": ["x", "{{ 2 }}", {"b": "{{ 3 }}"}], "c": None, "d": 4, "e": True}
    assert list(expressions_in(value)) == [(("a",), " 1 "), (("{{ key }}", 1), " 2 "), (("{{ key }}", 2, "b"), " 3 ")]
