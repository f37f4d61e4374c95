package org.apache.spark.sql.execution.streaming.state.cowstate.suites

import org.apache.spark.sql.execution.datasources.v2.state.{
  HDFSBackedStateDataSourceChangeDataReaderSuite,
  HDFSBackedStateDataSourceReadSuite
}
import org.apache.spark.sql.internal.SQLConf

/**
 * Spark's suite of the state reader, on checkpoints of format 2, which HDFSBackedStateStoreProvider
 * cannot write.
 */
class StateReadCheckpointV2Suite extends HDFSBackedStateDataSourceReadSuite {
  override def beforeAll(): Unit = {
    super.beforeAll()
    spark.conf.set(SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key, "2")
  }
}

/** Spark's suite of the state reader's change feed, on checkpoints of format 2. */
class ChangeFeedCheckpointV2Suite extends HDFSBackedStateDataSourceChangeDataReaderSuite {
  override def beforeAll(): Unit = {
    super.beforeAll()
    spark.conf.set(SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key, "2")
  }
}
