package org.apache.spark.sql.execution.streaming.state.cowstate.spark

import org.apache.spark.SparkException
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

// What Spark 4.1 has in place of spark_state/jvm/spark. The methods without a body are those of
// later versions that the provider implements, and that Spark 4.1 does not call.

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

  /** Rows get no checksums. Those of files that Spark 4.2 wrote are verified all the same. */
  def rowChecksumRatio(conf: StateStoreConf): Option[Long] = None

  /** As Spark 4.2 raises it. */
  def rowChecksumFailed(owner: String, expected: Int, computed: Int): SparkException = {
    val condition = "STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED"
    new SparkException(
      s"[$condition] Row checksum verification failed for State store $owner. Expected checksum: " +
        s"$expected, computed checksum: $computed.", null)
  }

  /** Spark 4.1 cannot be told to write a snapshot. */
  def storeWithSnapshot(provider: StateStoreProvider, version: Long): StateStore =
    throw new UnsupportedOperationException("cowstate adopt --revert needs Spark 4.2 or later")

  /** Spark 4.1 does not tell. */
  def partitionKey(
      operatorName: String,
      store: String,
      keySchema: StructType,
      joinFormat: Int): (StructType, UnsafeRow => UnsafeRow) =
    throw new UnsupportedOperationException("cowstate rescale needs Spark 4.2 or later")
}
