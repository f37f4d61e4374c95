package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.cowstate.spark.ReadStoreOfSpark

/** Refuses operations on column families, which Spark needs on RocksDB only. */
private[cowstate] trait WithoutColumnFamilies extends ReadStoreOfSpark {
  import ProvidedStore.ProviderName

  protected def only(colFamilyName: String): Unit =
    if (colFamilyName != StateStore.DEFAULT_COL_FAMILY_NAME) {
      throw StateStoreErrors.multipleColumnFamiliesNotSupported(ProviderName)
    }

  protected def refuse(operation: String): Nothing =
    throw StateStoreErrors.unsupportedOperationException(operation, ProviderName)

  /** Return the values of keys, in the order of the keys. A value is null if the key is absent. */
  override def multiGet(keys: Array[UnsafeRow], colFamilyName: String): Iterator[UnsafeRow] = {
    only(colFamilyName)
    keys.map(get(_, colFamilyName)).iterator
  }

  override def valuesIterator(key: UnsafeRow, colFamilyName: String): Iterator[UnsafeRow] =
    refuse("valuesIterator")

  override def prefixScanWithMultiValues(
      prefixKey: UnsafeRow, colFamilyName: String): StateStoreIterator[UnsafeRowPair] =
    refuse("prefixScanWithMultiValues")

  override def iteratorWithMultiValues(colFamilyName: String): StateStoreIterator[UnsafeRowPair] =
    refuse("iteratorWithMultiValues")

  override def allColumnFamilyNames: Set[String] = Set(StateStore.DEFAULT_COL_FAMILY_NAME)
}
