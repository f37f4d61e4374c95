"""A rescale checks each row that goes to a new partition."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.provider.provider_jvm import ProviderJvm

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("mishap", "outcome"),
    [
        ("none", r"[1-9]\d rows"),
        ("lost row", r"(\d+) rows of (?!\1 )\d+ have arrived, from 1 of 1 partitions. Run.*"),
        (
            "row comes twice",
            r"(\d+) rows of (?!\1 )\d+ have arrived, from 1 of 1 partitions. Run.*",
        ),
        ("another row", r"(\d+) rows of \1 have arrived, from 1 of 1 .*, and other ones than .*"),
        ("lost end", r"\d+ rows of 0 have arrived, from 0 of 1 partitions. Run.*"),
        ("unreadable", r"old: its files cannot be read: the disk is gone. Restore them .*"),
        ("wrong partition", r".*rescaled\.arrow does not hold the rows .*: \d\d instead of 100"),
        ("damaged file", r".*rescaled\.arrow is damaged.*"),
    ],
)
def test_rows_that_are_not_those_that_were_sent_make_no_partition(
    provider_jvm: ProviderJvm, tmp_path: Path, mishap: str, outcome: str
) -> None:
    told: str = provider_jvm.new("DealScript", str(tmp_path)).run(mishap)
    assert re.fullmatch(outcome, told), told


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        ("lost executor", "thrown FetchFailedException"),
        ("killed", "thrown TaskKilledException"),
        ("lost disk", "the disk is gone"),
    ],
)
def test_a_task_leaves_to_spark_what_spark_mends(
    provider_jvm: ProviderJvm, tmp_path: Path, failure: str, outcome: str
) -> None:
    """Spark computes the rows of a lost executor again. Any other failure is reported at the
    end."""
    script = provider_jvm.new("DealScript", str(tmp_path))
    assert outcome in script.outcomeOf(failure)
    assert not [*tmp_path.rglob("*.arrow")]
