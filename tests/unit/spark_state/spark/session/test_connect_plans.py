"""The text of an analysed plan tells the plan's watermarks and operators."""

from __future__ import annotations

import pytest

from spark_state.spark.session.connect_plans import (
    functions_of,
    has_aggregated_watermark,
    is_united_below,
    parsed_plan,
    watermarks_of,
)

PARSED = """== Parsed Logical Plan ==
'Union false, false
:- 'EventTimeWatermark of-the-parsed-plan, ts: timestamp, 10 seconds
"""
AFTER = """
== Optimized Logical Plan ==
~EventTimeWatermark of-the-optimized-plan, ts#1: timestamp, 10 seconds
"""
WATERMARK = "~EventTimeWatermark 7f1c, ts#1: timestamp, 10 seconds"


def explained(*lines: str) -> str:
    analysed = "\n".join(("== Analyzed Logical Plan ==", "ts: timestamp, key: string", *lines))
    return f"{PARSED}\n{analysed}\n{AFTER}"


ALONE = (
    "~Filter (key#2 = a)",
    f"+- {WATERMARK}",
    "   +- ~Union false, false",
    "      :- ~Relation a",
)
UNITED = (
    "~Project [ts#1]",
    "+- ~Union false, false",
    "   :- ~Relation rows",
    "   +- ~Project [ts#1]",
    f"      +- {WATERMARK}",
    "         +- ~Relation others",
)
JOINED = (
    "~Join Inner, (key#1 = key#2)",
    ":- ~Union false, false",
    ":  :- ~Relation a",
    ":  +- ~Relation b",
    f"+- {WATERMARK}",
    "   +- ~Relation c",
)


@pytest.mark.parametrize(("lines", "is_united"), [(ALONE, False), (UNITED, True), (JOINED, False)])
def test_a_union_counts_only_between_the_watermark_and_the_operator(
    lines: tuple[str, ...], is_united: bool
) -> None:
    nodes = parsed_plan(explained(*lines))
    assert watermarks_of(nodes) == {"7f1c"}
    assert is_united_below(nodes) is is_united


AGGREGATED = (
    "~Project [n#3]",
    "+- ~Aggregate [window#4, key#2], [count(1) AS n#3]",
    "   +- ~Project [window#4, key#2]",
    f"      +- {WATERMARK}",
    "         +- ~Relation rows",
)
BESIDE = (
    "~Join Inner, (key#2 = key#5)",
    ":- Aggregate [key#5], [key#5]",
    ":  +- Relation names",
    f"+- {WATERMARK}",
    "   +- ~Aggregate [key#2], [key#2, max(ts#0) AS ts#1]",
    "      +- ~Relation rows",
)
OF_A_BATCH = tuple(line.replace("~Aggregate", "Aggregate") for line in AGGREGATED)


@pytest.mark.parametrize(
    ("lines", "is_aggregated"),
    [(AGGREGATED, True), (BESIDE, False), (OF_A_BATCH, False), (ALONE, False)],
)
def test_an_aggregation_counts_only_above_the_watermark_of_its_stream(
    lines: tuple[str, ...], is_aggregated: bool
) -> None:
    assert has_aggregated_watermark(parsed_plan(explained(*lines))) is is_aggregated


def test_one_watermark_that_stands_twice_is_one() -> None:
    nodes = parsed_plan(explained("~Union false, false", f":- {WATERMARK}", f"+- {WATERMARK}"))
    assert watermarks_of(nodes) == {"7f1c"}
    assert is_united_below(nodes)


def test_functions_have_their_names_and_batch_plans_no_marks() -> None:
    nodes = parsed_plan(
        explained(
            "MapInArrow operator-1_cowstate_0af1(key#1, total#2L)#3, [key#4], false",
            "+- ~MapInArrow a.b-c_cowstate_ff(key#1)#3, [key#4], false",
        )
    )
    assert functions_of(nodes) == ["operator-1_cowstate_0af1", "a.b-c_cowstate_ff"]
    assert watermarks_of(nodes) == set()
    assert not is_united_below(nodes)


def test_a_text_without_the_plan_is_not_taken_for_an_empty_plan() -> None:
    with pytest.raises(AssertionError, match="no analysed plan"):
        parsed_plan(PARSED)
