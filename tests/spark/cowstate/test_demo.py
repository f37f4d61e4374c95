"""`cowstate demo` can be stopped with Ctrl-C and resumed, and reports a wrong answer."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.spark

FLIGHTS = 8_000
EPOCHS = 10


def demo(out: Path, *options: str) -> subprocess.Popen[str]:
    """Start the command."""
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "cowstate", "demo"),
            *("--out", str(out), "--flights", str(FLIGHTS), *options),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def epochs_done(out: Path) -> int:
    return len(list((out / "checkpoint" / "commits").glob("[0-9]*")))


def wait_for_epochs(process: subprocess.Popen[str], out: Path, epochs: int) -> None:
    while epochs_done(out) < epochs:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def without_worker_tracebacks(messages: str) -> list[str]:
    """Leave out the tracebacks of PySpark's workers, and return the other lines.

    A worker prints a traceback when the JVM closes its socket. PySpark's daemon then ends the
    worker, which may come after the first line of the traceback.
    """

    def kept(traceback: re.Match[str]) -> str:
        frames = traceback.group(1)
        return "" if frames is None or "pyspark/daemon.py" in frames else traceback.group()

    whole_or_first_line = r"^Traceback .*\n?((?:  .*\n)+\S.*\n?)?"
    return re.sub(whole_or_first_line, kept, messages, flags=re.MULTILINE).splitlines()


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output directory of a run that Ctrl-C stopped after its third epoch."""
    out = tmp_path_factory.mktemp("demo") / "out"
    process = demo(out)
    wait_for_epochs(process, out, epochs=3)
    process.send_signal(signal.SIGINT)
    printed, messages = process.communicate()
    assert process.returncode == 130, messages
    assert "the same command resumes the run" in messages
    assert [line for line in without_worker_tracebacks(messages) if "Traceback" in line] == []
    assert printed == ""
    return out


def test_an_interrupted_run_is_resumed_and_its_answer_agrees(interrupted: Path) -> None:
    done_before = epochs_done(interrupted)
    assert 3 <= done_before < EPOCHS
    process = demo(interrupted, "--json")
    printed, messages = process.communicate()
    assert process.returncode == 0, messages
    # The JVM warns of a module that Spark needs, before a program can turn the warning off.
    beside_progress = [
        line
        for line in without_worker_tracebacks(messages)
        if line and not line.startswith("flights:")
    ]
    assert beside_progress == ["WARNING: Using incubator modules: jdk.incubator.vector"]
    report = json.loads(printed)
    assert report["agrees_with_batch"] is True
    assert report["flights"] == FLIGHTS
    assert report["stream"]["first_epoch"] == done_before
    # Spark notes a file before it plans the epoch. If a stop comes between, the next epoch takes
    # both.
    epochs = epochs_done(interrupted)
    assert epochs in (EPOCHS - 1, EPOCHS)
    assert report["stream"]["epochs_done"] == epochs
    assert report["store"]["completed_epochs"] == epochs
    assert report["store"]["newest_epoch"] == epochs - 1
    legs = pq.read_table(interrupted / "legs")
    assert report["store"]["keys"] == pc.count_distinct(legs["tailnum"]).as_py()
    assert Path(report["picture"]).read_bytes().startswith(b"\x89PNG")


def test_a_finished_run_whose_result_was_changed_fails_and_shows_the_difference(
    interrupted: Path,
) -> None:
    changed = max((interrupted / "legs").glob("*.parquet"), key=lambda path: path.stat().st_size)
    legs = pq.read_table(changed)
    carried = pc.add(legs["carried"], 1).cast(legs.schema.field("carried").type)
    pq.write_table(legs.set_column(legs.column_names.index("carried"), "carried", carried), changed)
    changed.with_name(f".{changed.name}.crc").unlink()
    process = demo(interrupted)
    printed, messages = process.communicate()
    assert process.returncode == 1, messages
    assert "Nothing was left to replay." in printed
    assert "NOT equal to the batch computation." in printed
    assert f"{legs.num_rows} legs are only in the stream answer, such as:" in messages


def test_a_store_that_cannot_be_used_ends_the_demo_with_a_message(tmp_path: Path) -> None:
    process = demo(tmp_path / "out", "--store", "nosuchstore://bucket/state")
    printed, messages = process.communicate()
    assert process.returncode == 2
    assert "cowstate: cannot use the store nosuchstore://bucket/state" in messages
    assert "no file system is known for nosuchstore://" in messages
    assert "Traceback" not in messages
    assert printed == ""
