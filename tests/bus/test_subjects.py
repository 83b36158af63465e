"""Subjects: names are encoded as tokens and decoded, and the filters of readers match the published subjects."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from callboard.bus.events import TYPES
from callboard.bus.log.memory import matches
from callboard.bus.subjects import (
    TOKEN_BYTES_MAX,
    CommandSubject,
    EventSubject,
    RunRef,
    Subjects,
    name_of,
    partition_of,
    token,
)

names = st.text(max_size=12).filter(lambda name: len(name.encode("utf-8", "ignore")) * 3 <= TOKEN_BYTES_MAX)
refs = st.builds(RunRef, names, names)
prefixes = st.sampled_from(["cb", "deep.er", "a-b.c_d.e"])
types = st.sampled_from(sorted(TYPES))
fixed = settings(derandomize=True, deadline=None, database=None)


@fixed
@given(names)
def test_every_name_is_restored_from_its_token(name: str) -> None:
    encoded = token(name)
    assert name_of(encoded) == name
    assert encoded
    assert encoded.isascii()
    assert not set(encoded) & set(". *>\t\r\n")


@fixed
@given(names, names)
def test_different_names_have_different_tokens(one: str, other: str) -> None:
    assert (token(one) == token(other)) == (one == other)


def test_a_name_that_is_too_long_is_refused() -> None:
    assert len(token("x" * TOKEN_BYTES_MAX)) == TOKEN_BYTES_MAX
    with pytest.raises(ValueError, match="too long"):
        token("x" * (TOKEN_BYTES_MAX + 1))
    with pytest.raises(ValueError, match="too long"):
        token("ä" * 27)


@pytest.mark.parametrize("prefix", ["", ".", "a.", "a..b", "a b", "a.*", ">", "ä"])
def test_an_unusable_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="subject prefix"):
        Subjects(prefix)


@fixed
@given(prefixes, refs, names, types)
def test_an_event_subject_has_the_tokens_of_its_event(
    prefix: str, ref: RunRef, definition: str, event_type: str
) -> None:
    subjects = Subjects(prefix)
    subject = subjects.event(ref, definition, event_type)
    assert subjects.parse_event(subject) == EventSubject(ref.tenant, ref.run, definition, event_type)
    assert subjects.parse_event(subject).ref == ref
    for wanted in (
        subjects.run(ref),
        subjects.events(),
        subjects.events(ref.tenant),
        subjects.events(ref.tenant, ref.run, definition, event_type),
        subjects.events(None, None, definition),
        subjects.events(event_type=event_type),
    ):
        assert matches(wanted, subject)
    assert any(matches(kept, subject) for kept in subjects.stored_subjects())


@fixed
@given(refs, refs, names, types)
def test_a_runs_filter_matches_no_other_run(ref: RunRef, other: RunRef, definition: str, event_type: str) -> None:
    assume(ref != other)
    subjects = Subjects()
    assert not matches(subjects.run(ref), subjects.event(other, definition, event_type))


@fixed
@given(prefixes, refs, st.sampled_from(["cancel", "answer", "signal"]), st.integers(0, 63))
def test_the_subjects_of_users_match_the_filters_of_workers(
    prefix: str, ref: RunRef, verb: str, partition: int
) -> None:
    subjects = Subjects(prefix)
    start, tell = subjects.start(ref.tenant), subjects.tell(ref, verb)
    assert subjects.parse_inbound(start) == (ref.tenant, None, "start")
    assert subjects.parse_inbound(tell) == (ref.tenant, ref.run, verb)
    assert all(any(matches(read, said) for read in subjects.inbound()) for said in (start, tell))
    command, due = subjects.command(partition, ref, verb), subjects.due(partition, ref)
    assert subjects.parse_command(command) == CommandSubject(partition, ref.tenant, ref.run, verb)
    assert subjects.parse_command(due) == CommandSubject(partition, ref.tenant, ref.run, "alarm")
    assert subjects.parse_command(due).ref == ref
    assert all(any(matches(read, said) for read in subjects.partition(partition)) for said in (command, due))
    assert not any(matches(read, command) for read in subjects.partition(partition + 1))


@fixed
@given(prefixes, refs, names)
def test_live_subjects_are_not_stored_and_all_others_are(prefix: str, ref: RunRef, name: str) -> None:
    subjects = Subjects(prefix)

    def stored(subject: str) -> bool:
        return any(matches(kept, subject) for kept in subjects.stored_subjects())

    assert stored(subjects.timer(ref))
    assert stored(subjects.blob(ref, "0f"))
    assert stored(subjects.definition(ref.tenant, name))
    assert stored(subjects.reject(ref.tenant, name))
    assert not stored(subjects.live(ref, name, "model.delta"))
    assert not stored(subjects.api(ref.tenant, "start"))
    assert not stored(subjects.beat())


@fixed
@given(refs, st.integers(1, 64))
def test_a_partition_is_stable_and_below_the_count(ref: RunRef, count: int) -> None:
    assert 0 <= partition_of(ref, count) < count
    assert partition_of(ref, count) == partition_of(RunRef(*ref), count)


def test_partitions_are_all_used() -> None:
    assert {partition_of(RunRef("acme", f"run-{i}"), 8) for i in range(200)} == set(range(8))


@pytest.mark.parametrize(
    ("wanted", "subject", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.b.c", False),
        ("a.b.c", "a.b", False),
        ("a.*.c", "a.x.c", True),
        ("a.*", "a", False),
        ("a.>", "a", False),
        ("a.>", "a.b.c", True),
        (">", "a", True),
        ("*.b", "a.c", False),
    ],
)
def test_filters_match_as_the_server_does(wanted: str, subject: str, expected: bool) -> None:
    assert matches(wanted, subject) is expected
