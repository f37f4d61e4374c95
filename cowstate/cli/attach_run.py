"""Runs `cowstate attach`: reads the operators' stores, and reads the checkpoint in a Spark
session."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace
from uuid import uuid4

from pyspark.sql import SparkSession

from checkpoint_store.errors import NotAStoreError
from checkpoint_store.objects.store_outages import RETRY_SECONDS
from checkpoint_store.objects.store_url import absolute_url
from checkpoint_store.operator_stores import operators_at
from checkpoint_store.operators.attachment import attach_all, owner_location, stored_runs
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.runs.attachment_plan import attachments_of
from checkpoint_store.runs.checkpoint_location import digest_of
from cowstate.cli.attach_report import AttachedOperator, AttachReport, as_json, as_text
from cowstate.cli.stopped_query_run import Report, run_and_print
from spark_state.errors import ConfigurationError
from spark_state.spark.session.hadoop_files import HadoopFiles
from spark_state.spark.session.store_options import store_options


def attach_and_print(arguments: Namespace) -> None:
    """Run the command. Raises ConfigurationError, RunChoiceError and NoEpochToAttachError if the
    command refuses, and the errors of the stores."""
    run_and_print(arguments, _run, ConfigurationError)


def _run(spark: SparkSession, arguments: Namespace) -> Report:
    checkpoint = HadoopFiles(spark, arguments.checkpoint)
    query_id = _query_id(checkpoint)
    histories = _operators(checkpoint.url, arguments, query_id)
    stores = [history.store for history in histories]
    # Read the stores before the commit log: then an epoch of a running query is at most one batch
    # ahead of the log.
    runs = [stored_runs(store) for store in stores]
    committed, planned_batch = (
        max(checkpoint.numbers(log), default=-1) for log in ("commits", "offsets")
    )
    planned = attachments_of(
        runs,
        digest_of(checkpoint.url),
        committed,
        arguments.chosen_run,
        is_under_way=planned_batch > committed,
    )
    operators = [
        AttachedOperator(
            history.metadata.operator, stored, owner_location(history.store, stored), attachment
        )
        for history, stored, attachment in zip(histories, runs, planned, strict=True)
    ]
    if arguments.apply:
        if max(checkpoint.numbers("commits"), default=-1) != committed:
            raise ConfigurationError(
                f"Spark has committed a batch of {checkpoint.url} just now: the query is running. "
                "Nothing was changed. Stop it, and run the command again"
            )
        attached = attach_all(stores, planned, f"attached-{uuid4()}", checkpoint.url)
        operators = [replace(each, run=run) for each, run in zip(operators, attached, strict=True)]
    report = AttachReport(checkpoint.url, query_id, committed, arguments.apply, operators)
    return as_text(report), as_json(report)


def _query_id(checkpoint: HadoopFiles) -> str:
    try:
        return str(json.loads(checkpoint.text("metadata") or "")["id"])
    except (LookupError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{checkpoint.url} is not the checkpoint of a query: it has no file metadata with the "
            "query's id. Nothing was changed. Name the query's checkpointLocation"
        ) from error


def _operators(checkpoint: str, arguments: Namespace, query_id: str) -> list[OperatorHistory]:
    url = f"{absolute_url(arguments.store).rstrip('/')}/{query_id}"
    try:
        return operators_at(url, store_options(dict(arguments.conf)), RETRY_SECONDS)
    except NotAStoreError as error:
        raise ConfigurationError(
            f"no operator has a store in {url}, where {query_id} is the id of the query in "
            f"{checkpoint}. Nothing was changed. Name the query's spark.cowstate.store with --store"
        ) from error
