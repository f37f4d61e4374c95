"""Protects checkpoints on cowstate from Spark's offline repartitioning.

Spark can repartition the state of RocksDBStateStoreProvider only. But it looks at the provider of a
checkpoint after it has written a batch for the repartitioning to the offset log, and then the query
does not start any more. The guard looks first.
"""

from __future__ import annotations

from functools import wraps

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingCheckpointManager

from spark_state.errors import UnsupportedOperationError
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.provider.query_checkpoint import provider_of_last_batch

_GUARDED = "_cowstate_guarded"


def guard_offline_repartition(provider: str) -> None:
    """Let `StreamingCheckpointManager.repartition` refuse checkpoints on this provider class.

    It raises UnsupportedOperationError before anything is changed. All other calls go to Spark. May
    be called again.
    """
    repartition = StreamingCheckpointManager.repartition
    if hasattr(repartition, _GUARDED):
        return

    @wraps(repartition)
    def guarded(
        self: StreamingCheckpointManager,
        checkpoint_location: str,
        num_partitions: int,
        enforce_exactly_once_sink: bool = True,
    ) -> None:
        files = CheckpointFiles(SparkSession.active(), checkpoint_location)
        if provider_of_last_batch(files) == provider:
            raise UnsupportedOperationError(
                f"{files.url} is on cowstate, and Spark repartitions the state of "
                "RocksDBStateStoreProvider only. Nothing was changed. To get another number of "
                f"partitions, run: cowstate rescale {files.url} --partitions {num_partitions}"
            )
        repartition(self, checkpoint_location, num_partitions, enforce_exactly_once_sink)

    setattr(guarded, _GUARDED, True)
    StreamingCheckpointManager.repartition = guarded  # type: ignore[method-assign]
