package org.apache.spark.sql.execution.streaming.state.cowstate.suites

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.StateStoreTestsHelper._
import org.apache.spark.sql.execution.streaming.state.cowstate.CowStateStoreProvider
import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.RowChecksums
import org.apache.spark.sql.execution.streaming.state.cowstate.map.UndoLog
import org.apache.spark.sql.execution.streaming.state.cowstate.provider.CowStateStore

/** Spark's suite of row checksums. Damages rows in the places where cowstate holds rows. */
class RowChecksumSuite extends HDFSStateStoreRowChecksumSuite {
  override protected def createProvider: StateStoreProvider = new CountedProvider

  /** Put another value for a key, with the checksum of the earlier value. */
  override protected def corruptRow(
      provider: StateStoreProvider, store: StateStore, key: UnsafeRow): Unit = {
    val cowStore = store.asInstanceOf[CowStateStore]
    val value = store.get(key).copy()
    val map = cowStore.state.versions.map
    map.synchronized {
      map.put(key, flipped(value), RowChecksums.crc32cOf(key, value), undoLogOf(cowStore))
    }
  }

  /** Write the file anew: the last row gets another value, and keeps its earlier checksum. */
  override protected def corruptRowInFile(
      provider: StateStoreProvider, version: Long, isSnapshot: Boolean): Unit = {
    val (name, file) = FilesOfStore(provider.stateStoreId).named(version, isSnapshot).head
    val store = provider.getReadStore(version, None)
    val rows = store.iterator().map(pair => (pair.key.copy(), pair.value.copy())).toSeq
    store.release()
    file.delete()
    val pending = provider.asInstanceOf[CowStateStoreProvider].store.checkpoints.create(name)
    for (((key, value), place) <- rows.zipWithIndex) {
      val written = if (place == rows.size - 1) flipped(value) else value
      pending.rows.put(key, written, RowChecksums.crc32cOf(key, value))
    }
    pending.commit()
  }

  override protected def getReadVerifier(
      provider: StateStoreProvider, store: StateStore): Option[KeyValueIntegrityVerifier] =
    throw new UnsupportedOperationException("only Spark's own provider has a verifier of its own")

  private def flipped(value: UnsafeRow): UnsafeRow = dataToValueRow(valueRowToData(value) ^ 1)

  private def undoLogOf(store: CowStateStore): UndoLog = {
    val field = classOf[CowStateStore].getDeclaredFields.find(_.getName.endsWith("undo")).get
    field.setAccessible(true)
    field.get(store).asInstanceOf[UndoLog]
  }
}
