package org.apache.spark.sql.execution.streaming.state

import java.io.{DataInputStream, DataOutputStream}
import java.util

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.state.cowstate.suites.{
  CountedProvider, FilesOfStore
}

/**
 * Stands in the place of Spark's provider of this name: its jar comes before Spark's. So each suite
 * that runs on that provider, by default or because it says so, runs on cowstate's, unchanged.
 *
 * It has the methods that suites call, for without one the JVM ends the whole suite. Those that
 * show what only Spark's provider has inside fail their test.
 */
class HDFSBackedStateStoreProvider extends CountedProvider {
  /** All rows of the newest version that has a file. */
  def latestIterator(): Iterator[UnsafeRowPair] = {
    val store = getReadStore(FilesOfStore(stateStoreId).newestVersion, None)
    store.iterator()
  }

  def getLoadedMaps(): util.SortedMap[Long, HDFSBackedStateStoreMap] = isOfSpark("loadedMaps")

  def fm: CheckpointFileManager = isOfSpark("fm")

  def compressStream(out: DataOutputStream): DataOutputStream = isOfSpark("compressStream")

  def decompressStream(in: DataInputStream): DataInputStream = isOfSpark("decompressStream")

  private def isOfSpark(member: String): Nothing =
    throw new UnsupportedOperationException(s"only Spark's own provider has $member")
}
