package org.apache.spark.sql.execution.streaming.state.cowstate.spark

import org.apache.spark.SparkException
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.operators.stateful.StatePartitionKeyExtractorFactory
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

// Parts of Spark that the provider needs and whose code depends on the version, here for Spark 4.2
// and 4.3. In the jar for Spark 4.1, scripts/spark_4_1/OfSpark.scala replaces this file.

private[cowstate] trait ProviderOfSpark extends StateStoreProvider

private[cowstate] trait ReadStoreOfSpark extends ReadStateStore

private[cowstate] trait StoreOfSpark extends StateStore

private[cowstate] object OfSpark {
  /** Versions of Spark for which the jar is made. */
  val Versions: Seq[String] = Seq("4.2", "4.3")

  /**
   * Return n if one of n reads of rows is verified, 0 if no read is verified, None if rows have no
   * checksums.
   */
  def rowChecksumRatio(conf: StateStoreConf): Option[Long] =
    Option.when(conf.rowChecksumEnabled)(conf.rowChecksumReadVerificationRatio)

  /** Error for a row of `owner` with a wrong checksum. */
  def rowChecksumFailed(owner: String, expected: Int, computed: Int): SparkException =
    StateStoreErrors.rowChecksumVerificationFailed(owner, expected, computed)

  /** Open a store of Spark's provider. A commit of the store writes a snapshot. */
  def storeWithSnapshot(provider: StateStoreProvider, version: Long): StateStore =
    provider.getStore(version, None, forceSnapshotOnCommit = true, loadEmpty = false)

  /**
   * Return the columns of the key by which an operator shuffles, and the function from a key to the
   * row of these columns.
   */
  def partitionKey(
      operatorName: String,
      store: String,
      keySchema: StructType,
      joinFormat: Int): (StructType, UnsafeRow => UnsafeRow) = {
    val extractor = StatePartitionKeyExtractorFactory.create(
      operatorName, keySchema, store, StateStore.DEFAULT_COL_FAMILY_NAME, Some(joinFormat), None)
    (extractor.partitionKeySchema, extractor.partitionKey)
  }
}
