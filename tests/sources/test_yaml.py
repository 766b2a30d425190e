"""YAML is parsed by the core schema of version 1.2, with the line of every path."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.errors import UsageError
from kernelrl_core.sources.yaml import YamlProblem, dump, load_yaml, parse, parse_value


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e-5", 1e-5),
        ("2.0e-6", 2e-6),
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("1:30", "1:30"),
        ("010", 10),
        ("0o17", 15),
        ("0x1f", 31),
        ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"),
        ("3", 3),
        ("3.", 3.0),
        ("-.5", -0.5),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("+3", 3),
        ("true", True),
        ("True", True),
        ("~", None),
        ("null", None),
        ("", None),
        ("'3'", "3"),
        ("!!str 3", "3"),
        ("nullify", "nullify"),
        ("1e", "1e"),
        (".", "."),
        ("-", None),
    ],
)
def test_a_scalar_has_the_type_of_the_core_schema(written: str, value: object) -> None:
    if written == "-":
        assert parse_value("-") == [None]
        return
    found = parse_value(written)
    assert found == value
    assert type(found) is type(value)


words = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Zl", "Zp")))
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | words
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=12
)


@given(documents)
def test_json_is_parsed_to_the_same_types(value: object) -> None:
    found = parse_value(json.dumps(value, ensure_ascii=False))
    assert found == value
    assert repr(found) == repr(value)


@given(st.text(st.characters(codec="ascii", categories=("L", "N", "P")), min_size=1, max_size=8))
def test_a_plain_word_is_never_a_date_a_boolean_or_a_sexagesimal_number(text: str) -> None:
    try:
        found = parse_value(text)
    except YamlProblem:
        return
    if not isinstance(found, (dict, list)):
        assert found is None or isinstance(found, (str, int, float))
    if isinstance(found, bool):
        assert text.lower() in ("true", "false")


@given(st.text(max_size=40))
def test_any_text_is_parsed_or_refused_with_a_problem(text: str) -> None:
    with contextlib.suppress(YamlProblem):
        parse(text)


def test_every_path_has_its_line() -> None:
    lines = parse("model: {name: q}\nrewards:\n  speedup:\n    use: speedup\nsizes: [1,\n  2]\n").lines
    assert lines["model", "name"] == 1
    assert lines["rewards", "speedup", "use"] == 4
    assert lines["sizes", "1"] == 6


def test_a_repeated_key_is_refused_with_both_lines() -> None:
    with pytest.raises(YamlProblem, match="key 'a' is given twice, first on line 1") as caught:
        parse("a: 1\nb: 2\na: 3\n")
    assert caught.value.line == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1, 2", "not YAML"),
        ("a: b: c", "mapping values are not allowed"),
        ("a: !!python/object:os.system x", "tag"),
        ("a: !!timestamp 2024-01-01", "tag"),
        ("a: &x [*x]", "refers to itself"),
        ("? [1, 2]\n: 3", "single word"),
        ("a: 1\n---\nb: 2", "single document"),
        ("\x00", "not YAML"),
        ("a: !!int x", "is not a int"),
        ("[" * 3000, "nested too deeply"),
        ("a:\n\tb: 1", "a tab where YAML requires spaces"),
        ("a: 1\n\tb: 1", "a tab where YAML requires spaces"),
    ],
)
def test_unsupported_yaml_is_refused(text: str, message: str) -> None:
    with pytest.raises(YamlProblem, match=message):
        parse(text)


def test_the_error_names_file_and_line() -> None:
    assert load_yaml("a: 1e-1\n", Path("prices.yaml")) == {"a": 0.1}
    with pytest.raises(UsageError, match=r"^prices\.yaml:2: key 'a' is given twice"):
        load_yaml("a: 1\na: 2\n", Path("prices.yaml"))
    with pytest.raises(UsageError, match=r"^prices\.yaml: not YAML"):
        load_yaml("a: \x00", Path("prices.yaml"))


def test_aliases_that_grow_without_bound_are_refused() -> None:
    levels = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9))
    with pytest.raises(YamlProblem, match="more than 100,000 values"):
        parse("a0: &a0 [1]\n" + levels)


def test_the_safe_loader_of_pyyaml_is_unchanged() -> None:
    assert yaml.safe_load("no") is False


@given(documents)
def test_dumped_data_is_parsed_to_the_same_types(value: object) -> None:
    found = parse_value(dump(value))
    assert found == value
    assert repr(found) == repr(value)


@pytest.mark.parametrize("text", ["1e-5", "0o17", "010", "no", "1:30", "2024-01-01", "", "null", "-.5", "1_000"])
def test_dumped_text_stays_text_for_readers_of_either_version(text: str) -> None:
    written = dump({"a": text})
    assert parse_value(written) == yaml.safe_load(written) == {"a": text}
