package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/**
 * Iterator over the rows of `counts` whose keys have an old value in `values`. Each side of Spark's
 * join has two stores: `counts` has the number of values of each key, `values` has the values, by
 * key and index from 0.
 *
 * The join takes a key from this iterator, removes the key's old values, and puts other values at
 * the freed indexes. The join asks for the next key before writing how many values are left. At
 * that moment the count of the current key is wrong, but the old values of the key are gone, so the
 * key does not come again. A key with one value left may come again later, because the index 0
 * alone decides then. The join finds then that the value is not old.
 */
private[cowstate] final class KeysOfOldValues(
    counts: CowStateStore,
    values: CowStateStore,
    eviction: StoreEviction,
    oldValues: Iterator[(UnsafeRow, UnsafeRow)])
  extends Iterator[(UnsafeRow, UnsafeRow)] {
  private val index = counts.shape.keyFields
  private val keyOf = counts.shape.keyOfLonger()
  private var ahead: Option[(UnsafeRow, UnsafeRow)] = None

  override def hasNext: Boolean = {
    while (ahead.isEmpty && oldValues.hasNext) ahead = rowOf(oldValues.next()._1)
    ahead.isDefined
  }

  override def next(): (UnsafeRow, UnsafeRow) = {
    if (!hasNext) throw new NoSuchElementException("end of the keys")
    val row = ahead.get
    ahead = None
    row
  }

  private def rowOf(keyAndIndex: UnsafeRow): Option[(UnsafeRow, UnsafeRow)] = {
    val key = keyOf(keyAndIndex)
    val count = counts.get(key)
    val comes = count != null && {
      if (count.getLong(0) == 1) keyAndIndex.getLong(index) == 0
      else {
        val value = values.get(keyAndIndex)
        value != null && eviction.time.of(value) <= eviction.upTo
      }
    }
    Option.when(comes)((key.copy(), count))
  }
}
