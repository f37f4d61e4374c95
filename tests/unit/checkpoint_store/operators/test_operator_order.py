"""Operators are listed in the order of their names, and a number in a name counts as a number."""

from __future__ import annotations

import random

import pytest

from checkpoint_store.operators.operator_order import operator_order


@pytest.mark.parametrize(
    "names",
    [
        ["operator-0", "operator-1", "operator-2", "operator-10", "operator-100"],
        ["7", "12", "counts", "counts-3", "counts-20", "operator-1", "rules"],
        ["v2-part9", "v2-part10", "v10-part1"],
        ["a", "a1", "a01b", "a1b"],
        ["operator-2", "operator-²", "operator-٣", "²", "٣"],
    ],
)
def test_numbers_in_names_count_as_numbers(names: list[str]) -> None:
    mixed = random.Random(1).sample(names, len(names))
    assert sorted(mixed, key=operator_order) == names


def test_only_the_name_in_a_url_counts_unless_names_are_the_same() -> None:
    urls = ["s3://b/q1/operator-10/", "s3://a/q10/operator-10", "s3://b/q9/operator-2"]
    assert sorted(urls, key=operator_order) == [*reversed(urls)]
