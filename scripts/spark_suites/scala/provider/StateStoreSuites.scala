package org.apache.spark.sql.execution.streaming.state.cowstate.suites

import org.apache.spark.sql.execution.streaming.state
import org.apache.spark.sql.execution.streaming.state.{
  EnableStateStoreRowChecksum,
  HDFSBackedStateStoreProvider
}

/** Spark's suite of HDFSBackedStateStoreProvider, for the files of cowstate. */
class StateStoreSuite extends state.StateStoreSuite {
  override protected def fileExists(
      provider: HDFSBackedStateStoreProvider, version: Long, isSnapshot: Boolean): Boolean =
    FilesOfStore(provider.stateStoreId).of(version, isSnapshot).nonEmpty

  override def deleteFilesEarlierThanVersion(
      provider: HDFSBackedStateStoreProvider, version: Long): Unit =
    for (earlier <- 0L until version; isSnapshot <- Seq(true, false)) {
      FilesOfStore(provider.stateStoreId).of(earlier, isSnapshot).foreach(_.delete())
    }

  override def emptyFile(
      provider: HDFSBackedStateStoreProvider, version: Long, isSnapshot: Boolean): Unit =
    FilesOfStore(provider.stateStoreId).of(version, isSnapshot).foreach { file =>
      file.delete()
      file.createNewFile()
    }
}

/** Spark's suite of HDFSBackedStateStoreProvider, for the files of cowstate, with row checksums. */
class StateStoreSuiteWithRowChecksum extends StateStoreSuite with EnableStateStoreRowChecksum {
  override protected def testQuietly(name: String)(f: => Unit): Unit =
    super[StateStoreSuite].testQuietly(name)(f)
}
