package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/**
 * The rows of `counts` whose keys have an old value in `values`. A side of Spark's join has for each
 * key its number of values in one store, and in another one the values, by key and index from 0.
 *
 * A join takes a key, removes its old values, and puts others at their indexes. It asks for the next
 * key before it writes how many values are left. At that moment the count of this one key is wrong,
 * but its old values are gone, so it does not come again. A key that has one value left may come
 * again later, because its index alone decides. Then the join finds that the value is not old.
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
