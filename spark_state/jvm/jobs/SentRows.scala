package org.apache.spark.sql.execution.streaming.state.cowstate.jobs

import java.io.Closeable
import java.nio.charset.StandardCharsets.UTF_8

import scala.util.control.NonFatal

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{CowStateException, StoreShape}
import org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints.FoldedRow
import org.apache.spark.sql.execution.streaming.state.cowstate.files.ArrowRowsWriter
import org.apache.spark.unsafe.Platform
import org.apache.spark.util.MutablePair

/**
 * Writer of the rows that a partition sends to another partition through Spark's shuffle. There are
 * three kinds of rows, each with the same four columns:
 *
 *   kind      key    value    number      sum
 *   data      key    value    checksum    0         a row of the state
 *   tally     null   null     rows        hashes    number and sum of the data rows, see StateTally
 *   failure   null   text     0           0         the reason why not all rows were sent
 */
private[cowstate] final class SentRow {
  private val writer = new UnsafeRowWriter(SentRow.Fields, 256)

  def data(key: UnsafeRow, value: UnsafeRow, checksum: Int): UnsafeRow = {
    begin()
    write(0, key)
    write(1, value)
    writer.write(2, checksum.toLong)
    writer.write(3, 0L)
    writer.getRow
  }

  def tally(sent: StateTally): UnsafeRow = {
    begin()
    writer.setNullAt(0)
    writer.setNullAt(1)
    writer.write(2, sent.rows)
    writer.write(3, sent.hash)
    writer.getRow
  }

  def failure(reason: String): UnsafeRow = {
    begin()
    writer.setNullAt(0)
    writer.write(1, reason.getBytes(UTF_8))
    writer.write(2, 0L)
    writer.write(3, 0L)
    writer.getRow
  }

  private def begin(): Unit = {
    writer.reset()
    writer.zeroOutNullBytes()
  }

  private def write(column: Int, row: UnsafeRow): Unit = row.getBaseObject match {
    case bytes: Array[Byte] =>
      val from = Math.toIntExact(row.getBaseOffset - Platform.BYTE_ARRAY_OFFSET)
      writer.write(column, bytes, from, row.getSizeInBytes)
    case _ => writer.write(column, row.getBytes)
  }
}

private[cowstate] object SentRow {
  val Fields = 4
}

/**
 * Iterator that sends the rows of an old partition, and at the end a tally to each new partition.
 * If reading fails, each new partition gets the error instead of a tally, and reports the error.
 *
 * @param url      URL of the old partition, for errors
 * @param first    number of the first new partition, counted over the new partitions of all stores
 * @param targetOf new partition of a key, from 0
 * @param open     opens the rows, when the first row is requested
 */
private[cowstate] final class SentRows(
    url: String,
    first: Int,
    targets: Int,
    targetOf: UnsafeRow => Int,
    open: () => Iterator[FoldedRow] with Closeable)
  extends Iterator[Product2[Int, UnsafeRow]] with Closeable {
  private val task = TaskContext.get()
  private val row = new SentRow
  private val pair = new MutablePair[Int, UnsafeRow]
  private val tallies = Array.fill(targets)(StateTally())
  private var rows: Iterator[FoldedRow] with Closeable = _
  private var last: Iterator[Product2[Int, UnsafeRow]] = _
  private var ready: Product2[Int, UnsafeRow] = _

  override def hasNext: Boolean = {
    if (ready == null) ready = if (last == null) nextRow() else nextOf(last)
    ready != null
  }

  override def next(): Product2[Int, UnsafeRow] = {
    if (!hasNext) throw new NoSuchElementException
    val taken = ready
    ready = null
    taken
  }

  private def nextRow(): Product2[Int, UnsafeRow] = {
    task.killTaskIfInterrupted()
    try {
      if (rows == null) rows = open()
      if (rows.hasNext) return sent(rows.next())
      last = toAll(target => row.tally(tallies(target)))
    } catch {
      case NonFatal(e) =>
        val reason = StoreJob.reasonOf(url, e)
        last = toAll(_ => row.failure(reason))
    }
    nextOf(last)
  }

  private def sent(read: FoldedRow): Product2[Int, UnsafeRow] = {
    val target = targetOf(read.key)
    tallies(target) = tallies(target).plus(read.keyHash, read.value)
    pair.update(first + target, row.data(read.key, read.value, read.checksum))
  }

  private def toAll(made: Int => UnsafeRow): Iterator[Product2[Int, UnsafeRow]] =
    Iterator.range(0, targets).map(target => pair.update(first + target, made(target)))

  private def nextOf(iterator: Iterator[Product2[Int, UnsafeRow]]): Product2[Int, UnsafeRow] =
    if (iterator.hasNext) iterator.next() else null

  override def close(): Unit = if (rows != null) rows.close()
}

/** Rows that arrive at a new partition from `sources` old partitions. */
private[cowstate] final class ArrivedRows(
    rows: Iterator[UnsafeRow], shape: StoreShape, sources: Int) {
  private val key = new UnsafeRow(shape.keyFields)
  private val value = new UnsafeRow(shape.valueFields)
  private var sent = StateTally()
  private var heardFrom = 0

  /**
   * Put all rows into a file. Throws CowStateException if the arrived rows are not the sent rows.
   */
  def putInto(file: ArrowRowsWriter): StateTally = {
    var arrived = StateTally()
    rows.foreach { row =>
      if (row.isNullAt(0)) {
        hear(row)
      } else {
        point(row, 0, key)
        point(row, 1, value)
        arrived = arrived.plus(key, value)
        file.put(key, value, row.getLong(2).toInt)
      }
    }
    if (heardFrom != sources || arrived != sent) {
      val others = if (arrived.rows == sent.rows) ", and other ones than were sent" else ""
      throw new CowStateException(
        s"${arrived.rows} rows of ${sent.rows} have arrived, from $heardFrom of $sources " +
          s"partitions$others. Run the command again")
    }
    arrived
  }

  private def hear(row: UnsafeRow): Unit = {
    if (!row.isNullAt(1)) throw new CowStateException(new String(row.getBinary(1), UTF_8))
    heardFrom += 1
    sent = sent.plus(StateTally(row.getLong(2), row.getLong(3)))
  }

  private def point(row: UnsafeRow, column: Int, to: UnsafeRow): Unit = {
    val place = row.getLong(column)
    to.pointTo(row.getBaseObject, row.getBaseOffset + (place >>> 32), place.toInt)
  }
}
