"""Runs the flights job: replay, stream and sink, and then the check and the report.

    <out>/run.json         facts about the run; written after the input, before the stream starts
         /input/           the flights as files in time order
         /legs/            the result: Spark's file sink, exactly once
         /checkpoint/      Spark's checkpoint, unless placed elsewhere
         /store/           the state, unless placed elsewhere
         /carried_by_hour.png

To resume a stopped run, run the job again with the same directory.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event
from types import FrameType
from typing import NoReturn

import pandas as pd
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from tqdm import tqdm

from cowstate.command_session import command_session
from cowstate.demo.batch_check import differences, expected_legs, read_flights_with_pandas
from cowstate.demo.picture import draw_delay_by_hour
from cowstate.demo.replay import FLIGHT_SCHEMA, read_flights, write_replay
from cowstate.demo.report import DemoReport, StreamOutcome, as_json, as_text, worst_chains
from cowstate.demo.rotations import LAYOVER_LIMIT_MINUTES, LEG_SCHEMA, Rotations
from cowstate.demo.store_contents import store_contents
from spark_state.errors import ConfigurationError
from spark_state.spark.operator.operator_plan import transform_with_state

AGREES, DIFFERS_OR_FAILED, INTERRUPTED = 0, 1, 130
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of the job: master, number of flights, and places of files. None stands for a place
    below `out`, or for all flights."""

    out: Path
    store: str | None
    checkpoint: str | None
    master: str
    flights: int | None

    @property
    def store_url(self) -> str:
        return self.store or str(self.out.absolute() / "store")

    @property
    def checkpoint_url(self) -> str:
        return self.checkpoint or str(self.out.absolute() / "checkpoint")


@dataclass(frozen=True, slots=True)
class ReplayFacts:
    """Content of run.json: facts about the run in the directory `out`. `flights`, `files`: number
    of flights and of input files. `store`, `checkpoint`: URLs or paths."""

    flights: int
    files: int
    store: str
    checkpoint: str


def prepare_replay(options: DemoOptions) -> ReplayFacts:
    """Write the input, unless the input exists. Raises ConfigurationError if `out` holds a run with
    other options."""
    path = options.out / "run.json"
    flights = read_flights(options.flights)
    wanted = (flights.num_rows, options.store_url, options.checkpoint_url)
    if path.exists():
        facts = ReplayFacts(**json.loads(path.read_text(encoding="utf-8")))
        held = (facts.flights, facts.store, facts.checkpoint)
        if held != wanted:
            raise ConfigurationError(
                f"{options.out} holds a run with (flights, store, checkpoint) = {held}, but this "
                f"run has {wanted}: use the same options to resume it, or another --out"
            )
        return facts
    try:
        files = write_replay(flights, options.out / "input")
    except OSError as error:
        raise ConfigurationError(
            f"cannot write to {options.out}: {error}; choose another --out"
        ) from error
    facts = ReplayFacts(wanted[0], files, wanted[1], wanted[2])
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(asdict(facts)), encoding="utf-8")
    unfinished.replace(path)
    return facts


def demo_session(options: DemoOptions) -> AbstractContextManager[SparkSession]:
    """The session of the job."""
    settings = {
        "spark.pyspark.python": sys.executable,
        "spark.sql.session.timeZone": "UTC",
        "spark.cowstate.store": options.store_url,
    }
    return command_session("cowstate demo", options.master, settings)


def start_query(spark: SparkSession, options: DemoOptions) -> StreamingQuery:
    """Start the stream. Each epoch reads one input file, in time order; the processor's legs go to
    the sink."""
    flights = (
        spark.readStream.schema(FLIGHT_SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(options.out / "input"))
    )
    legs = transform_with_state(
        flights.where("tailnum IS NOT NULL").groupBy("tailnum"),
        Rotations(),
        LEG_SCHEMA,
        output_mode="append",
        time_mode="None",
    )
    return (
        legs.writeStream.format("parquet")
        .outputMode("append")
        .option("path", str(options.out / "legs"))
        .option("checkpointLocation", options.checkpoint_url)
        .trigger(availableNow=True)
        .start()
    )


@contextmanager
def noted_interruption() -> Iterator[Event]:
    """Yield an event that Ctrl-C sets. The first Ctrl-C raises no KeyboardInterrupt, so the caller
    can stop a query between two calls into the JVM. A second Ctrl-C raises as usual."""
    asked, earlier = Event(), signal.getsignal(signal.SIGINT)

    def ask(_signal: int, _frame: FrameType | None) -> None:
        asked.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, earlier)


def follow_query(spark: SparkSession, query: StreamingQuery, files: int) -> StreamOutcome:
    """Show the progress of the query until the query ends or Ctrl-C asks to stop. Raises
    StreamingQueryException if the query fails."""
    started = time.monotonic()
    progress = EpochProgress()
    with noted_interruption() as asked, tqdm(total=files, unit="epoch", desc="flights") as bar:
        while query.isActive and not asked.is_set():
            time.sleep(_POLL_SECONDS)
            progress.show(query.lastProgress, bar)
        if asked.is_set():
            spark.sparkContext.setLogLevel("OFF")
            query.stop()
        else:
            query.awaitTermination()
            # The last progress of a query may belong to a trigger without work.
            for epoch in query.recentProgress:
                progress.show(epoch, bar)
    return StreamOutcome(
        query_id=str(query.id),
        first_epoch=progress.first_epoch,
        epochs_done=progress.epochs_done,
        interrupted=asked.is_set(),
        seconds=time.monotonic() - started,
    )


class EpochProgress:
    """Progress of the stream, in epochs from 0. An epoch reads one file.

    There is an exception: if the job is stopped after Spark has listed a file, but before Spark has
    planned an epoch for this file, the first epoch after the restart reads two files.
    """

    def __init__(self) -> None:
        self.first_epoch: int | None = None
        self.epochs_done = 0

    def show(self, progress: StreamingQueryProgress | None, bar: tqdm[NoReturn]) -> None:
        """Move the bar to the query's epoch. The bar never goes back."""
        if progress is None or not progress["numInputRows"] or progress["batchId"] < bar.n:
            return
        epoch = progress["batchId"]
        if self.first_epoch is None:
            self.first_epoch = bar.initial = bar.n = epoch
        bar.set_postfix_str(f"{progress['processedRowsPerSecond']:,.0f} flights/s", refresh=False)
        bar.update(epoch + 1 - bar.n)
        self.epochs_done = epoch + 1


def read_legs(spark: SparkSession, options: DemoOptions) -> pd.DataFrame:
    """Read the result of the stream from its sink."""
    legs: pd.DataFrame = spark.read.parquet(str(options.out / "legs")).toArrow().to_pandas()
    return legs


def run_demo(options: DemoOptions) -> DemoReport | StreamOutcome:
    """Run or resume the job. Return the report, or the StreamOutcome if the stream was stopped."""
    facts = prepare_replay(options)
    with demo_session(options) as spark:
        stream = follow_query(spark, start_query(spark, options), facts.files)
        if stream.interrupted:
            return stream
        legs = read_legs(spark, options)
    expected = expected_legs(read_flights_with_pandas(options.flights), LAYOVER_LIMIT_MINUTES)
    operator_store = f"{options.store_url.rstrip('/')}/{stream.query_id}/{Rotations.__name__}"
    picture = options.out / "carried_by_hour.png"
    draw_delay_by_hour(legs, picture)
    return DemoReport(
        flights=facts.flights,
        legs=len(legs),
        legs_with_carried_delay=int((legs["carried"] > 0).sum()),
        stream=stream,
        chains=worst_chains(legs),
        picture=picture,
        store=store_contents(operator_store),
        differences=differences(legs, expected),
    )


def run_and_print(options: DemoOptions, *, json_report: bool) -> int:
    """Run or resume the job, print its report, and return the exit code."""
    try:
        result = run_demo(options)
    except StreamingQueryException as error:
        print(f"The query failed; the same command resumes it.\n{error}", file=sys.stderr)
        return DIFFERS_OR_FAILED
    if isinstance(result, StreamOutcome):
        print(
            f"Stopped with {result.epochs_done} epochs done; the same command resumes the run. "
            f"To begin anew, remove {options.out}.",
            file=sys.stderr,
        )
        return INTERRUPTED
    print(json.dumps(as_json(result)) if json_report else as_text(result))
    if result.differences:
        print(f"The stream's answer is wrong:\n{result.differences}", file=sys.stderr)
        return DIFFERS_OR_FAILED
    return AGREES
