package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{BoundReference, LeafExpression, UnsafeRow}
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.execution.streaming.state.cowstate.base.StoreShape
import org.apache.spark.sql.execution.streaming.state.cowstate.map.{
  CopyOnWritePagedMap, OldRecords, RowTime, UndoLog
}
import org.apache.spark.sql.types.{BinaryType, DataType, LongType, StructType}
import org.apache.spark.unsafe.Platform

/**
 * The rows of scripts. A key is a number: its row has the key's prefix, the number, and 0 to 2 more
 * words. A value is "words:seed": so many words, each told by the seed and its place.
 */
object ScriptedRows {
  val KeyFields = 3
  val ValueFields = 1
  private val Step = 0x9e3779b97f4a7c15L
  private val KeySchema = new StructType()
    .add("prefix", LongType).add("number", LongType).add("more", BinaryType)
  private val ValueSchema = new StructType().add("value", LongType)

  def shape(withPrefix: Boolean): StoreShape =
    StoreShape(KeySchema, ValueSchema, if (withPrefix) 1 else 0)

  /** Few prefixes that many odd keys have, and many that at most four even keys have. */
  def prefixOf(number: Long): Long = if (number % 2 == 1) number % 13 else 100 + number / 8

  def prefix(number: Long): UnsafeRow = row(1, Array(0L, number))

  def key(number: Long): UnsafeRow = {
    val more = (number % 3).toInt
    row(KeyFields,
      Array(0L, prefixOf(number), number, (32L << 32) | (more * 8L)) ++
        Array.fill(more)(number))
  }

  def value(text: String): UnsafeRow = {
    val parts = text.split(':')
    row(ValueFields, Array.tabulate(parts(0).toInt)(parts(1).toLong + _ * Step))
  }

  /** The number of a key, or the seed of a value, of which some have no time. */
  def timeOf(part: String): RowTime = part match {
    case "key" => RowTime(BoundReference(1, LongType, nullable = false), isOfKey = true)
    case "value" => RowTime(SeedOfValue(), isOfKey = false)
  }

  /**
   * Remove rows that are old, and whose numbers are multiples of a stride, as the store of a join
   * does. Returns how many are old.
   */
  private[cowstate] def evict(
      map: CopyOnWritePagedMap, time: RowTime, upTo: Long, stride: Long, undo: UndoLog): Int = {
    map.readTimes(time, KeyFields, ValueFields)
    val old = map.oldRecords(upTo, KeyFields)
    val keys = new Array[UnsafeRow](OldRecords.Window)
    def next(): Int = old.next((i, key) => keys(i) = key.copy())
    var seen = 0
    var count = next()
    while (count > 0) {
      for (i <- 0 until count if keys(i).getLong(1) % stride == 0) {
        if (i % 2 == 0) map.removeAt(old.address(i), old.hash(i), undo)
        else {
          map.removeIf(keys(i), old.hash(i), undo, ValueFields)(
            time.isOfKey || time.of(_) <= upTo)
        }
      }
      seen += count
      count = next()
    }
    map.compactIfDue(map.deadBytes)
    seen
  }

  private final case class SeedOfValue() extends LeafExpression with CodegenFallback {
    override def dataType: DataType = LongType
    override def nullable: Boolean = true
    override def eval(row: InternalRow): Any = {
      val seed = word(row.asInstanceOf[UnsafeRow], 0)
      if (seed % 4 == 3) null else seed
    }
  }

  /** The number of a key, after comparing all of it. */
  def showKey(row: UnsafeRow): String = {
    val number = word(row, 2)
    if (row == key(number)) number.toString else s"damaged key $row"
  }

  /** "words:seed" after comparing all words; "-" for none. */
  def showValue(row: UnsafeRow): String =
    if (row == null) "-"
    else {
      val text = s"${row.getSizeInBytes / 8}:${word(row, 0)}"
      if (row == value(text)) text else s"damaged value $row"
    }

  def show(rows: Iterator[(UnsafeRow, UnsafeRow)]): String =
    rows.map { case (key, value) => s"${showKey(key)}=${showValue(value)}" }.toSeq.sorted.mkString(
      " ")

  private def word(row: UnsafeRow, index: Int): Long =
    Platform.getLong(row.getBaseObject, row.getBaseOffset + index * 8L)

  private def row(fields: Int, words: Array[Long]): UnsafeRow = {
    val bytes = new Array[Byte](words.length * 8)
    for ((word, index) <- words.zipWithIndex) {
      Platform.putLong(bytes, Platform.BYTE_ARRAY_OFFSET + index * 8L, word)
    }
    val result = new UnsafeRow(fields)
    result.pointTo(bytes, bytes.length)
    result
  }
}
