package org.apache.spark.sql.execution.streaming.state.benchmark

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/**
 * Keeps nothing: every key is new, every commit succeeds. A query's answers are wrong with it, and
 * its time is what Spark takes around the state store.
 */
class EmptyStateStoreProvider extends StateStoreProvider {
  @volatile private var id: StateStoreId = _
  @volatile private var answer: UnsafeRow = _

  /** What the store has of every key. */
  protected def answerOf(valueSchema: StructType): UnsafeRow = null

  override def init(
      stateStoreId: StateStoreId,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useColumnFamilies: Boolean,
      storeConfs: StateStoreConf,
      hadoopConf: Configuration,
      useMultipleValuesPerKey: Boolean,
      stateSchemaProvider: Option[StateSchemaProvider]): Unit = {
    id = stateStoreId
    answer = answerOf(valueSchema)
  }

  override def stateStoreId: StateStoreId = id
  override def close(): Unit = ()

  override def getStore(
      version: Long,
      stateStoreCkptId: Option[String],
      forceSnapshotOnCommit: Boolean,
      loadEmpty: Boolean): StateStore = new EmptyStateStore(id, version, answer)

  override def getReadStore(version: Long, stateStoreCkptId: Option[String]): ReadStateStore =
    new EmptyStateStore(id, version, answer)

  override def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore,
      version: Long,
      stateStoreCkptId: Option[String],
      forceSnapshotOnCommit: Boolean): StateStore = readStore.asInstanceOf[EmptyStateStore]
}

/**
 * Every key has the same row, all zeros, and nothing is kept. What Spark does with the rows that a
 * store has, it does with this one, too: what is left of a query's time is that of the store.
 */
class AnsweringStateStoreProvider extends EmptyStateStoreProvider {
  override protected def answerOf(valueSchema: StructType): UnsafeRow = {
    val row = new UnsafeRow(valueSchema.length)
    val bytes = UnsafeRow.calculateBitSetWidthInBytes(valueSchema.length) + 8 * valueSchema.length
    row.pointTo(new Array[Byte](bytes), bytes)
    row
  }
}

private final class EmptyStateStore(
    val id: StateStoreId, val version: Long, answer: UnsafeRow) extends StateStore {
  private var committed = false

  private def none: StateStoreIterator[UnsafeRowPair] = new StateStoreIterator(Iterator.empty)

  override def get(key: UnsafeRow, colFamilyName: String): UnsafeRow = answer
  override def keyExists(key: UnsafeRow, colFamilyName: String): Boolean = answer != null
  override def put(key: UnsafeRow, value: UnsafeRow, colFamilyName: String): Unit = ()
  override def remove(key: UnsafeRow, colFamilyName: String): Unit = ()
  override def iterator(colFamilyName: String): StateStoreIterator[UnsafeRowPair] = none
  override def prefixScan(prefixKey: UnsafeRow, colFamilyName: String)
      : StateStoreIterator[UnsafeRowPair] = none
  override def abort(): Unit = ()
  override def hasCommitted: Boolean = committed

  override def commit(): Long = {
    committed = true
    version + 1
  }

  override def metrics: StateStoreMetrics = StateStoreMetrics(0, 0, Map.empty, Map.empty)

  override def getStateStoreCheckpointInfo(): StateStoreCheckpointInfo =
    StateStoreCheckpointInfo(id.partitionId, version + 1, None, None)

  override def valuesIterator(key: UnsafeRow, colFamilyName: String): Iterator[UnsafeRow] =
    Iterator.empty
  override def prefixScanWithMultiValues(prefixKey: UnsafeRow, colFamilyName: String)
      : StateStoreIterator[UnsafeRowPair] = none
  override def iteratorWithMultiValues(colFamilyName: String): StateStoreIterator[UnsafeRowPair] =
    none
  override def allColumnFamilyNames: Set[String] = Set(StateStore.DEFAULT_COL_FAMILY_NAME)
  override def createColFamilyIfAbsent(
      colFamilyName: String,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useMultipleValuesPerKey: Boolean,
      isInternal: Boolean): Unit = ()
  override def removeColFamilyIfExists(colFamilyName: String): Boolean = false
  override def merge(key: UnsafeRow, value: UnsafeRow, colFamilyName: String): Unit = ()
  override def mergeList(key: UnsafeRow, values: Array[UnsafeRow], colFamilyName: String): Unit = ()
  override def putList(key: UnsafeRow, values: Array[UnsafeRow], colFamilyName: String): Unit = ()
}
