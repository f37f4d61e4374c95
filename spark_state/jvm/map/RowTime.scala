package org.apache.spark.sql.execution.streaming.state.cowstate.map

import org.apache.spark.sql.catalyst.expressions.{BoundReference, Expression, UnsafeRow}

/**
 * Time of a row. A search for old rows compares the time with a limit; time and limit have the same
 * unit.
 *
 * @param expression expression of type long, bound to the fields of the key or of the value
 * @param isOfKey    true if the expression is bound to the key
 */
private[cowstate] final case class RowTime(expression: Expression, isOfKey: Boolean) {

  /** Return the time of a row, `Never` if the time is null. Spark evicts no row without a time. */
  def of(row: UnsafeRow): Long = expression match {
    // Same result as `eval`, but without an object for each long.
    case BoundReference(ordinal, _, _) =>
      if (row.isNullAt(ordinal)) RowTime.Never else row.getLong(ordinal)
    case other =>
      val time = other.eval(row)
      if (time == null) RowTime.Never else time.asInstanceOf[Long]
  }
}

private[cowstate] object RowTime {
  val Never: Long = Long.MaxValue
}

/** Reader of the times of rows, in the memory of the store. Not safe for several threads. */
private[cowstate] final class TimeReader(val time: RowTime, keyFields: Int, valueFields: Int) {
  private val row = new UnsafeRow(if (time.isOfKey) keyFields else valueFields)

  def isOf(other: RowTime, otherKeyFields: Int, otherValueFields: Int): Boolean =
    time == other &&
      row.numFields == (if (other.isOfKey) otherKeyFields else otherValueFields)

  def another(): TimeReader = new TimeReader(time, keyFields, valueFields)

  def read(base: AnyRef, keyOffset: Long, keyLength: Int, valueLength: Int): Long = {
    if (time.isOfKey) row.pointTo(base, keyOffset, keyLength)
    else row.pointTo(base, keyOffset + keyLength, valueLength)
    time.of(row)
  }
}

/** Test for old rows: the rows whose time is `upTo` or before. */
private[cowstate] final class OldRows(times: TimeReader, upTo: Long) {
  def has(base: AnyRef, keyOffset: Long, keyLength: Int, valueLength: Int): Boolean =
    times.read(base, keyOffset, keyLength, valueLength) <= upTo
}
