package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.SparkException
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.operators.stateful.StatePartitionKeyExtractorFactory
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

// What the provider needs of Spark that differs between versions. This is of 4.2 and 4.3;
// scripts/spark_4_1 has what takes its place in the jar for Spark 4.1.

private[cowstate] trait ProviderOfSpark extends StateStoreProvider

private[cowstate] trait ReadStoreOfSpark extends ReadStateStore

private[cowstate] trait StoreOfSpark extends StateStore

private[cowstate] object OfSpark {
  /** The versions that the jar is made for. */
  val Versions: Seq[String] = Seq("4.2", "4.3")

  /** Every how many-th read of a row is verified, 0 for none; None if rows have no checksums. */
  def rowChecksumRatio(conf: StateStoreConf): Option[Long] =
    Option.when(conf.rowChecksumEnabled)(conf.rowChecksumReadVerificationRatio)

  /** The error of a row of `owner` whose checksum differs. */
  def rowChecksumFailed(owner: String, expected: Int, computed: Int): SparkException =
    StateStoreErrors.rowChecksumVerificationFailed(owner, expected, computed)

  /** A store of Spark's provider, which writes a snapshot when it commits. */
  def storeWithSnapshot(provider: StateStoreProvider, version: Long): StateStore =
    provider.getStore(version, None, forceSnapshotOnCommit = true, loadEmpty = false)

  /** By which columns of its key an operator shuffles, and how they are taken out of a key. */
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
