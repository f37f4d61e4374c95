package org.apache.spark.sql.execution.streaming.state

import java.io.{DataInputStream, DataOutputStream}
import java.util

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.state.cowstate.suites.{
  CountedProvider, FilesOfStore
}

/**
 * Replacement for Spark's provider of the same name: the jar of this class comes before Spark's
 * jars. So each suite that uses Spark's provider, by default or by name, runs unchanged on
 * cowstate's provider.
 *
 * The class has all methods that suites call, because a missing method would end the whole suite. A
 * method about the inside of Spark's provider throws, so only the calling test fails.
 */
class HDFSBackedStateStoreProvider extends CountedProvider {
  /** Return all rows of the newest version that has a file. */
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
