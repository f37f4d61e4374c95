"""A command without a session starts one and ends it, and says why in a sentence if Spark does not
start or a setting is misspelled."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

CHECKPOINT_OF_A_QUERY = (
    Path(__file__).parents[2] / "compatibility" / "version_1" / "provider" / "format-1"
)


@pytest.mark.parametrize(
    ("given", "environment", "reason"),
    [
        (("--master", "moon"), {}, "--master moon: [JAVA_GATEWAY_EXITED]"),
        ((), {"JAVA_HOME": "/nowhere"}, "there is no Java in JAVA_HOME=/nowhere: install Java 17"),
        (
            ("--conf", "spark.sql.shuffle.partitions=many"),
            {},
            "Spark does not start with --master local[*]: [INVALID_CONF_VALUE.TYPE_MISMATCH]",
        ),
        (
            ("--conf", "spark.cowstat.store=x"),
            {},
            "cowstat.store is set, and there is no such setting: did you mean spark.cowstate.store",
        ),
    ],
)
def test_the_error_is_a_sentence_that_names_the_value(
    given: tuple[str, ...], environment: dict[str, str], reason: str, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    command = [sys.executable, "-m", "cowstate", "rescale", str(checkpoint), "--partitions", "3"]
    ended = subprocess.run(
        [*command, *given],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 2
    told = [line for line in ended.stderr.splitlines() if line.startswith("cowstate: ")]
    assert len(told) == 1
    assert reason in told[0]
    assert "Traceback" not in ended.stderr
    assert not checkpoint.exists()


RESCALE = """
import sys
from pyspark import SparkContext
from pyspark.sql import SparkSession
from cowstate.cli.command_line import main

assert SparkSession.getActiveSession() is None
assert main(["rescale", sys.argv[1], "--partitions", "3", "--apply", "--force"]) == 0
assert SparkSession.getActiveSession() is None
assert SparkContext._active_spark_context is None
"""


def test_a_rescale_without_a_session_starts_one_and_ends_it(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(CHECKPOINT_OF_A_QUERY, checkpoint)
    subprocess.run([sys.executable, "-c", RESCALE, str(checkpoint)], check=True, timeout=300)
    entry = (checkpoint / "offsets" / "2").read_text().split("\n")[1]
    assert json.loads(entry)["conf"]["spark.sql.shuffle.partitions"] == "3"
