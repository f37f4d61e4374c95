"""Protects checkpoints on cowstate from Spark's offline repartitioning.

Spark can repartition only the state of RocksDBStateStoreProvider. But before Spark checks the
provider of a checkpoint, it writes a batch for the repartitioning to the offset log, and then the
query no longer starts. The guard checks the provider first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingCheckpointManager

from spark_state.errors import UnsupportedOperationError
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.provider.provider_class import PROVIDER_CLASS
from spark_state.spark.provider.query_checkpoint import provider_of_last_batch
from spark_state.spark.session.replaced_methods import replace_once

_GUARDED = "_cowstate_guarded"


def guard_offline_repartition() -> None:
    """Let `StreamingCheckpointManager.repartition` refuse checkpoints on cowstate. The guard raises
    UnsupportedOperationError before any change. All other calls go to Spark. Safe to call again."""
    replace_once(StreamingCheckpointManager, "repartition", _GUARDED, _guarded)


def _guarded(repartition: Callable[..., None]) -> Callable[..., None]:
    @wraps(repartition)
    def guarded(
        self: Any, checkpoint_location: str, num_partitions: int, *args: Any, **options: Any
    ) -> None:
        files = CheckpointFiles(SparkSession.active(), checkpoint_location)
        if provider_of_last_batch(files) == PROVIDER_CLASS:
            raise UnsupportedOperationError(
                f"{files.url} is on cowstate, and Spark repartitions the state of "
                "RocksDBStateStoreProvider only. Nothing was changed. To get another number of "
                f"partitions, run: cowstate rescale {files.url} --partitions {num_partitions}"
            )
        repartition(self, checkpoint_location, num_partitions, *args, **options)

    return guarded
