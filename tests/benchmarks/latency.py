"""Breakdown of the milliseconds of a small micro-batch.

    python tests/benchmarks/latency.py [--rows 500] [--batches 60] [--warm 40] [--rounds 3]
                                       [--partitions 2 32] [--plans identity cowstate …]
                                       [--sockets true] [--profile] [--first 3]
                                       [--request-ms 20] [--out FILE]

Queries with a trigger as soon as possible read `rate-micro-batch`, `--rows` rows a batch, and write
to `noop`. They run one after the other in one session on `local[2]`, in each round:

    projection   the rows without their value: a plan without Python and without shuffle
    identity     a shuffle by key, and a `mapInArrow` that passes the rows on: the floor of every
                 operator in Python
    cowstate     `transform_with_state`, heap backend, store on the local disk
    row_api      Spark's `transformWithState` on RocksDB with changelog checkpointing

The benchmark prints percentiles of `addBatch` and of the whole batch (`triggerExecution`), the
ratio to `identity`, the median of each phase of Spark's progress, and, as rows `of …`, the jobs and
tasks of a batch from Spark's event log. `--sockets false` lets Python workers talk over TCP. Python
workers that have run `cowstate` are quicker for the later plans of the session, too; `--plans
identity` alone shows Spark without cowstate.

`--first 3` measures the first batch of an application instead: it runs each plan in three new
processes, in turn, and prints the seconds from the start of the query to the end of the batch.

`--request-ms 20` puts the store into an S3 server on this machine (moto) whose requests take 20 ms
more, and prints the requests of `cowstate` for each batch and subtask, maintenance included.

`--profile` runs `cowstate` again with timed_worker_daemon.py, and prints for the tasks of the
batches the median milliseconds between two steps of a task and of its epoch.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_state
from spark_state.spark.session.worker_sockets import SOCKETS_KEY
from tests.benchmarks.benchmark_script import QUIET, parser_of, write_results
from tests.benchmarks.count_rows import CountRows
from tests.benchmarks.python_state import ROCKSDB
from tests.benchmarks.python_state_plans import OUTPUT
from tests.benchmarks.timed_worker_daemon import FOLDER_VARIABLE
from tests.support.stores.moto_s3 import S3Server, moto_s3

PHASES = (
    "latestOffset",
    "walCommit",
    "getBatch",
    "queryPlanning",
    "addBatch",
    "commitOffsets",
)
STEPS = ("called", "connected", "first", "Present", "Accepted", "Durable", "EndOfOutput", "ended")
ROOT = Path(__file__).resolve().parents[2]
Plan = Callable[[DataFrame, int], DataFrame]


def passed_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def projection(rows: DataFrame, _partitions: int) -> DataFrame:
    return rows.select("key")


def identity(rows: DataFrame, partitions: int) -> DataFrame:
    return rows.repartition(partitions, "key").mapInArrow(passed_on, "key string, value bigint")


def cowstate(rows: DataFrame, _partitions: int) -> DataFrame:
    return spark_state.transform_with_state(
        rows.groupBy("key"), CountRows(), OUTPUT, "update", "None"
    )


def row_api(rows: DataFrame, _partitions: int) -> DataFrame:
    return rows.groupBy("key").transformWithState(CountRows(), OUTPUT, "update", "None")


PLANS: dict[str, Plan] = {plan.__name__: plan for plan in (projection, identity, cowstate, row_api)}


def start_session(
    folder: Path, sockets: str, store: Mapping[str, str], *, profiled: bool
) -> SparkSession:
    """Start a session. `store`: settings of a store that is not on the local disk."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    (folder / "events").mkdir(exist_ok=True)
    (folder / "times").mkdir(exist_ok=True)
    settings = {
        **QUIET,
        SOCKETS_KEY: sockets,
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        "spark.cowstate.store": str(folder / "store"),
        "spark.local.dir": str(folder / "scratch"),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        **store,
    }
    if profiled:
        os.environ["PYTHONPATH"] = str(ROOT)
        os.environ[FOLDER_VARIABLE] = str(folder / "times")
        settings["spark.python.daemon.module"] = "tests.benchmarks.timed_worker_daemon"
    builder = SparkSession.builder.master("local[2]").appName("latency")
    return builder.config(map=settings).getOrCreate()


def run(
    spark: SparkSession, folder: Path, plan: str, partitions: int, rows: int, batches: int
) -> Any:
    """Run a new query until it has done `batches` batches. Returns the stopped query."""
    spark.conf.set("spark.cowstate.maxParallelism", str(max(128, partitions)))
    for key in "spark.sql.shuffle.partitions", "spark.cowstate.parallelism":
        spark.conf.set(key, str(partitions))
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    source = source.option("numPartitions", 2).option("startTimestamp", 0).load()
    keyed = source.select(F.concat(F.lit("key"), F.col("value") % 50_000).alias("key"), "value")
    query = (
        PLANS[plan](keyed, partitions)
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", tempfile.mkdtemp(dir=folder))
        .start()
    )
    while len(query.recentProgress) < batches:
        if query.exception() is not None:
            raise SystemExit(str(query.exception()))
        time.sleep(0.05)
    query.stop()
    return query


def first_batch(plan: str, partitions: int, rows: int, sockets: str) -> float:
    """Seconds from the start of a query to the end of the first batch, in a process that has run no
    query before."""
    with tempfile.TemporaryDirectory(prefix="cowstate-latency-") as name:
        spark = start_session(Path(name), sockets, {}, profiled=False)
        start = time.perf_counter()
        run(spark, Path(name), plan, partitions, rows, batches=1)
        seconds = time.perf_counter() - start
        spark.stop()
    return seconds


def first_batches(given: Any) -> dict[str, list[float]]:
    """The seconds of first batches, by plan and number of partitions. Each run is a call of this
    script with a single case, which runs in the script's own process."""
    cases = [*product(given.partitions, given.plans)]
    if (given.first, len(cases)) == (1, 1):
        ((partitions, plan),) = cases
        seconds = first_batch(plan, partitions, given.rows, given.sockets)
        return {f"{plan} {partitions}": [seconds]}
    by_case: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "first.json"
        for partitions, plan in cases * given.first:
            command = [sys.executable, __file__, "--first", "1", "--plans", plan]
            command += ["--partitions", str(partitions), "--rows", str(given.rows)]
            command += ["--sockets", given.sockets, "--out", str(out)]
            subprocess.run(command, check=True, capture_output=True)
            for case, seconds_of_case in json.loads(out.read_text()).items():
                by_case[case] += seconds_of_case
    for case, seconds_of_case in by_case.items():
        print(f"{case:16} first batch {', '.join(f'{s:.2f}' for s in seconds_of_case)} s")
    return by_case


def phases(query: Any, warm: int, batches: int) -> dict[str, list[float]]:
    """Milliseconds of each phase of the batches after the warm-up."""
    measured = query.recentProgress[warm : warm + batches]
    return {
        phase: [progress.durationMs.get(phase, 0) for progress in measured]
        for phase in (*PHASES, "triggerExecution")
    }


def jobs_of(events: Path) -> dict[str, dict[int, list[dict[str, Any]]]]:
    """The jobs of each batch, by the id of the run of the query: number of tasks and stages, and
    milliseconds."""
    jobs: dict[int, dict[str, Any]] = {}
    by_batch: dict[str, dict[int, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    (log,) = events.iterdir()
    for line in log.read_text().splitlines():
        event = json.loads(line)
        match event["Event"]:
            case "SparkListenerJobStart":
                properties = event.get("Properties") or {}
                batch = properties.get("streaming.sql.batchId")
                if batch is None:
                    continue
                stages = event["Stage Infos"]
                job = {
                    "start": event["Submission Time"],
                    "stages": len(stages),
                    "tasks": sum(stage["Number of Tasks"] for stage in stages),
                }
                jobs[event["Job ID"]] = job
                by_batch[properties["spark.jobGroup.id"]][int(batch)].append(job)
            case "SparkListenerJobEnd" if event["Job ID"] in jobs:
                job = jobs[event["Job ID"]]
                job["ms"] = event["Completion Time"] - job["start"]
    return by_batch


def percentiles(samples: Sequence[float]) -> tuple[float, float, float]:
    """The 50th, 90th and 99th percentile."""
    cuts = statistics.quantiles(samples, n=100, method="inclusive")
    return cuts[49], cuts[89], cuts[98]


def show(name: str, samples: dict[str, list[float]], floor: float) -> None:
    add, whole = percentiles(samples["addBatch"]), percentiles(samples["triggerExecution"])
    rest = ", ".join(f"{phase} {statistics.median(samples[phase]):.0f}" for phase in PHASES)
    print(
        f"{name:16} addBatch {add[0]:.0f} / {add[1]:.0f} / {add[2]:.0f} ms, {add[0] / floor:.2f} "
        f"of identity; batch {whole[0]:.0f} / {whole[1]:.0f} / {whole[2]:.0f} ms\n{'':16} {rest}"
    )


def show_jobs(batches: dict[int, list[dict[str, Any]]], warm: int) -> None:
    """Print the median of each job of a batch, by the job's place in the batch."""
    shapes: dict[tuple[int, int, int], list[float]] = defaultdict(list)
    for batch, jobs in batches.items():
        if batch >= warm:
            for place, job in enumerate(sorted(jobs, key=lambda job: job["start"])):
                shapes[place, job["stages"], job["tasks"]].append(job.get("ms", 0))
    for (place, stages, tasks), ms in sorted(shapes.items()):
        print(
            f"{'':16} job {place + 1}: {stages} stages, {tasks} tasks, "
            f"{statistics.median(ms):.0f} ms in {len(ms)} batches"
        )


def show_steps(times: Path, warm: int) -> None:
    """Print the median milliseconds from step to step of the tasks."""
    records = [json.loads(line) for path in times.iterdir() for line in path.open()]
    records = [record for record in records if record["epoch"] >= warm]
    for before, after in pairwise(STEPS):
        took = [1000 * (record[after] - record[before]) for record in records]
        print(f"{'':16} {before} -> {after}: {statistics.median(took):.1f} ms")


def show_requests(requests: Mapping[str, int], tasks: int) -> None:
    """Print the requests to the store for each batch and subtask."""
    shares = ", ".join(f"{kind} {count / tasks:.2f}" for kind, count in sorted(requests.items()))
    print(f"{'':16} requests of a subtask and batch: {shares}")


@contextmanager
def distant_store(
    request_ms: float | None,
) -> Iterator[tuple[dict[str, str], Counter[str]]]:
    """Yield the settings of a store whose requests take `request_ms` milliseconds more, and the
    counts of its requests. Yields nothing without `request_ms`."""
    if request_ms is None:
        yield {}, Counter()
        return
    # The server's log has a line for each request.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with moto_s3() as server, server.counting(request_ms) as requests:
        yield settings_of(server), requests


def settings_of(server: S3Server) -> dict[str, str]:
    """Settings of Spark for a store on a server."""
    settings = {
        "spark.cowstate.store": server.new_bucket(),
        # Operators refuse secrets that Spark would show.
        "spark.redaction.regex": "(?i)secret|password|token|storeOptions",
    }
    for name, value in server.storage_options.items():
        text = value if isinstance(value, str) else json.dumps(value)
        settings[f"spark.cowstate.storeOptions.{name}"] = text
    return settings


def measure(
    given: Any, folder: Path, store: Mapping[str, str], counts: Counter[str]
) -> dict[str, dict[str, list[float]]]:
    """Run the plans in turn, and print their figures. Returns the milliseconds of each phase, by
    plan and number of partitions."""
    results: dict[str, dict[str, list[float]]] = {}
    spark = start_session(folder, given.sockets, store, profiled=given.profile)
    run_ids: dict[str, str] = {}
    requests: dict[str, Counter[str]] = defaultdict(Counter)
    tasks = Counter[str]()
    batches = given.warm + given.batches
    for _, partitions, plan in product(range(given.rounds), given.partitions, given.plans):
        before = counts.copy()
        query = run(spark, folder, plan, partitions, given.rows, batches)
        case = f"{plan} {partitions}"
        requests[case] += counts - before
        tasks[case] += partitions * len(query.recentProgress)
        run_ids[case] = str(query.runId)
        measured = results.setdefault(case, defaultdict(list))
        for phase, samples in phases(query, given.warm, given.batches).items():
            measured[phase] += samples
    spark.stop()
    jobs = jobs_of(folder / "events")
    for case, measured in results.items():
        floor = results.get(f"identity {case.split()[1]}", measured)
        show(case, measured, statistics.median(floor["addBatch"]))
        show_jobs(jobs[run_ids[case]], given.warm)
        if requests[case]:
            show_requests(requests[case], tasks[case])
    return results


def main() -> None:
    parser = parser_of(__doc__, "latency", rows=500, batches=60, warm=40, rounds=3, sockets="true")
    parser.add_argument("--partitions", nargs="*", type=int, default=[2, 32])
    parser.add_argument("--plans", nargs="*", default=list(PLANS))
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--first", type=int)
    parser.add_argument("--request-ms", type=float)
    given = parser.parse_args()
    if given.first:
        write_results(given.out, first_batches(given))
        return
    with (
        tempfile.TemporaryDirectory(prefix="cowstate-latency-") as name,
        distant_store(given.request_ms) as (store, requests),
    ):
        results = measure(given, Path(name), store, requests)
        if given.profile:
            show_steps(Path(name) / "times", given.warm)
    write_results(given.out, results)


if __name__ == "__main__":
    main()
