package org.apache.spark.sql.execution.streaming.state.cowstate.spark

import org.apache.spark.SparkException
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

// Replacement of spark_state/jvm/spark for Spark 4.1. The methods without a body are methods of
// later versions of Spark: the provider implements these methods, and Spark 4.1 does not call them.

private[cowstate] trait ProviderOfSpark extends StateStoreProvider {
  def getStore(
      version: Long,
      stateStoreCkptId: Option[String],
      forceSnapshotOnCommit: Boolean,
      loadEmpty: Boolean): StateStore

  override def getStore(version: Long, stateStoreCkptId: Option[String]): StateStore =
    getStore(version, stateStoreCkptId, forceSnapshotOnCommit = false, loadEmpty = false)

  def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore,
      version: Long,
      stateStoreCkptId: Option[String],
      forceSnapshotOnCommit: Boolean): StateStore

  override def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore, version: Long, uniqueId: Option[String]): StateStore =
    upgradeReadStoreToWriteStore(readStore, version, uniqueId, forceSnapshotOnCommit = false)

  def doSnapshotMaintenance(): Unit

  def doCleanupMaintenance(): Unit
}

private[cowstate] trait ReadStoreOfSpark extends ReadStateStore {
  def multiGet(keys: Array[UnsafeRow], colFamilyName: String): Iterator[UnsafeRow]

  def prefixScanWithMultiValues(
      prefixKey: UnsafeRow, colFamilyName: String): StateStoreIterator[UnsafeRowPair]

  def iteratorWithMultiValues(colFamilyName: String): StateStoreIterator[UnsafeRowPair]

  def allColumnFamilyNames: Set[String]
}

private[cowstate] trait StoreOfSpark extends StateStore {
  def keyExists(key: UnsafeRow, colFamilyName: String): Boolean
}

private[cowstate] object OfSpark {
  val Versions: Seq[String] = Seq("4.1")

  /** No ratio, so rows get no checksums. Checksums in files from Spark 4.2 are still verified. */
  def rowChecksumRatio(conf: StateStoreConf): Option[Long] = None

  /** Return the error that Spark 4.2 raises for a wrong row checksum. */
  def rowChecksumFailed(owner: String, expected: Int, computed: Int): SparkException = {
    val condition = "STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED"
    new SparkException(
      s"[$condition] Row checksum verification failed for State store $owner. Expected checksum: " +
        s"$expected, computed checksum: $computed.", null)
  }

  /** Throw, because Spark 4.1 cannot be told to write a snapshot. */
  def storeWithSnapshot(provider: StateStoreProvider, version: Long): StateStore =
    throw new UnsupportedOperationException("cowstate adopt --revert needs Spark 4.2 or later")

  /** Throw, because Spark 4.1 does not tell the columns that decide the partition of a row. */
  def partitionKey(
      operatorName: String,
      store: String,
      keySchema: StructType,
      joinFormat: Int): (StructType, UnsafeRow => UnsafeRow) =
    throw new UnsupportedOperationException("cowstate rescale needs Spark 4.2 or later")
}
