package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/**
 * Iterator over the rows of `counts` whose keys have an old value in `values`. Each side of Spark's
 * join has two stores: `counts` has the number of values of each key, `values` has the values, by
 * key and index from 0.
 *
 * The join takes a key from this iterator, removes the key's old values, and puts other values at
 * the freed indexes. The join asks for the next key before writing the new count of the current
 * key. At that moment the count is wrong, but the iterator also looks at the values: the key's old
 * values are gone, so the iterator skips the key.
 *
 * If the count of a key is one, the iterator does not read the value, but only looks for index 0.
 * So a key with one value left may come a second time. This does no harm: the join finds that the
 * value is not old.
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
