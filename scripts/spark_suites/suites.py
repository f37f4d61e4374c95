"""The list of Spark's suites to run, with the class that runs a suite on each provider.

Spark's own class runs a suite on both providers, except if the suite looks for files or rows of
HDFSBackedStateStoreProvider: then a class of `scala/provider` looks for cowstate's files and rows.

From Spark's packages of streaming and of the state reader, the list has every suite that starts a
query with state on HDFSBackedStateStoreProvider, or opens the provider's stores. The other suites
of the packages open no store, open RocksDB only, start Python, or need a browser. The list has no
suites of other packages, though some of these suites may run a query with state, too, such as
AdaptiveQueryExecSuite.
"""

from __future__ import annotations

from dataclasses import dataclass

SQL = "org.apache.spark.sql"
STATE = f"{SQL}.execution.streaming.state"
STREAMING = f"{SQL}.streaming"
EXECUTION = f"{SQL}.execution.streaming"
READER = f"{SQL}.execution.datasources.v2.state"
HARNESS = f"{STATE}.cowstate.suites"

# Tests named after RocksDB or changelog checkpointing, but not after HDFS, open only RocksDB's
# stores.
LEFT_OUT = "^(?!.*HDFS).*(RocksDB|rocksdb|changelog checkpointing)"


@dataclass(frozen=True, slots=True)
class Suite:
    """Classes that run a suite. `spark`: Spark's own class, empty if there is none. `cowstate`: the
    class for cowstate, empty if Spark's own class runs the suite on cowstate, too."""

    spark: str
    cowstate: str = ""

    @property
    def name(self) -> str:
        """The name of the suite here: the simple name of the class that runs on cowstate."""
        return (self.cowstate or self.spark).rpartition(".")[2]

    def class_for(self, *, is_cowstate: bool) -> str:
        """The class that runs the suite on a provider; empty if the suite does not run on the
        provider."""
        return self.cowstate if is_cowstate and self.cowstate else self.spark


SUITES = [
    # Stores
    Suite("", f"{HARNESS}.StateStoreBaseSuite"),
    Suite(f"{STATE}.StateStoreSuite", f"{HARNESS}.StateStoreSuite"),
    Suite(f"{STATE}.StateStoreSuiteWithRowChecksum", f"{HARNESS}.StateStoreSuiteWithRowChecksum"),
    Suite(f"{STATE}.HDFSStateStoreRowChecksumSuite", f"{HARNESS}.RowChecksumSuite"),
    Suite(f"{STATE}.StateStoreCompatibilitySuite"),
    Suite(f"{STATE}.StateStoreRDDSuite"),
    Suite(f"{STATE}.StateStoreCoordinatorSuite"),
    Suite(f"{STATE}.StateStoreCoordinatorStreamingSuite"),
    Suite(f"{STATE}.StateStoreInstanceMetricSuite"),
    Suite(f"{STATE}.StateStoreInstanceMetricSuiteWithRowChecksum"),
    Suite(f"{STATE}.StreamingSessionWindowStateManagerSuite"),
    Suite(f"{STATE}.SymmetricHashJoinStateManagerSuite"),
    Suite(f"{STATE}.SymmetricHashJoinStateManagerEventTimeInKeySuite"),
    Suite(f"{STATE}.SymmetricHashJoinStateManagerEventTimeInValueSuite"),
    Suite(f"{STATE}.OperatorStateMetadataSuite"),
    Suite(f"{EXECUTION}.MergingSortWithSessionWindowStateIteratorSuite"),
    # Operators
    Suite(f"{STREAMING}.StreamingAggregationSuite"),
    Suite(f"{STREAMING}.StreamingDeduplicationSuite"),
    Suite(f"{STREAMING}.StreamingDeduplicationWithinWatermarkSuite"),
    Suite(f"{STREAMING}.StreamingInnerJoinWithoutVCFSuite"),
    Suite(f"{STREAMING}.StreamingOuterJoinWithoutVCFSuite"),
    Suite(f"{STREAMING}.StreamingFullOuterJoinWithoutVCFSuite"),
    Suite(f"{STREAMING}.StreamingLeftSemiJoinWithoutVCFSuite"),
    Suite(f"{STREAMING}.StreamingSessionWindowSuite"),
    Suite(f"{STREAMING}.FlatMapGroupsWithStateSuite"),
    Suite(f"{STREAMING}.FlatMapGroupsWithStateWithInitialStateSuite"),
    Suite(f"{STREAMING}.MultiStatefulOperatorsSuite"),
    Suite(f"{STREAMING}.EventTimeWatermarkSuite"),
    Suite(f"{EXECUTION}.EventTimeWatermarkWithWatermarkDefInSelectSuite"),
    Suite(f"{STREAMING}.StreamingAggregationDistributionSuite"),
    Suite(f"{STREAMING}.StreamingDeduplicationDistributionSuite"),
    Suite(f"{STREAMING}.StreamingSessionWindowDistributionSuite"),
    Suite(f"{STREAMING}.FlatMapGroupsWithStateDistributionSuite"),
    # Readers
    Suite(f"{READER}.HDFSBackedStateDataSourceReadSuite"),
    Suite("", f"{HARNESS}.StateReadCheckpointV2Suite"),
    Suite(f"{READER}.HDFSBackedStateDataSourceChangeDataReaderSuite"),
    Suite("", f"{HARNESS}.ChangeFeedCheckpointV2Suite"),
    Suite(f"{READER}.StateDataSourceNegativeTestSuite"),
    Suite(f"{READER}.StateDataSourceSQLConfigSuite"),
    Suite(f"{READER}.StateDataSourceNoEmptyDirCreationSuite"),
    Suite(f"{READER}.StatePartitionAllColumnFamiliesReaderSuite"),
    # Queries
    Suite(f"{STREAMING}.StreamingQuerySuite"),
    Suite(f"{EXECUTION}.sources.ForeachBatchSinkSuite"),
    Suite(f"{STREAMING}.StreamingStateStoreFormatCompatibilitySuite"),
    Suite(f"{STREAMING}.StreamingQueryOptimizationCorrectnessSuite"),
    Suite(f"{STREAMING}.StreamingQueryStatusAndProgressSuite"),
    Suite(f"{STREAMING}.StreamSuite"),
    Suite(f"{STREAMING}.DeprecatedStreamingAggregationSuite"),
    Suite(f"{EXECUTION}.MicroBatchExecutionSuite"),
    Suite(f"{EXECUTION}.ProgressReporterSuite"),
    Suite(f"{EXECUTION}.MemorySinkSuite"),
    Suite(f"{EXECUTION}.sources.ForeachWriterSuite"),
    Suite(f"{STREAMING}.FileStreamSinkV1Suite"),
    Suite(f"{STREAMING}.FileStreamSinkV2Suite"),
    Suite(f"{STREAMING}.FileStreamSourceSuite"),
    Suite(f"{STREAMING}.test.DataStreamReaderWriterSuite"),
]
