package org.apache.spark.sql.execution.streaming.state.cowstate.files

import java.nio.{ByteBuffer, ByteOrder}
import java.util

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.Words
import org.apache.spark.unsafe.Platform

/**
 * Collects the rows of a record batch, for the column `name` of a file. If all rows of the first
 * record batch have one width, the column has this width. Then Arrow stores no offsets. This saves
 * space, because offsets compress badly. Record batches with rows of another width go to a second
 * column, see ArrowColumn.
 */
private[cowstate] final class BinaryColumn(name: String, isNullable: Boolean) {
  import BinaryColumn._

  private var bytes = new Array[Byte](1024)
  private var ends = new Array[Int](64)
  private var used = 0
  /** A bit for each value: 1 for null. Empty for a column without nulls, as most columns are. */
  private var missing = new Array[Byte](0)
  private var count = 0
  private var nullCount = 0
  /** Width of the rows of this record batch; Several if the rows differ. */
  private var rowWidth = 0
  private var kinds: Seq[ArrowColumn] = Nil

  def length: Int = count
  def dataBytes: Int = used

  def append(row: UnsafeRow): Unit = {
    val from = roomForRow(row.getSizeInBytes)
    Words.copy(row, bytes, Platform.BYTE_ARRAY_OFFSET + from)
  }

  def append(base: AnyRef, offset: Long, length: Int): Unit = {
    val from = roomForRow(length)
    Words.copy(base, offset, bytes, Platform.BYTE_ARRAY_OFFSET + from, length)
  }

  def appendNull(): Unit = {
    val place = count >> 3
    if (place >= missing.length) {
      missing = util.Arrays.copyOf(missing, math.max(place + 1, 64) * 2)
    }
    missing(place) = (missing(place) | (1 << (count & 7))).toByte
    room(0)
    nullCount += 1
  }

  /**
   * Choose the columns of the file by the rows of the first record batch. `isLast`: true if the
   * file has no other record batch.
   */
  def choose(isLast: Boolean): Unit = {
    val isFixed = rowWidth > 0 && rowWidth <= MostWidth
    kinds =
      if (!isFixed) Seq(ArrowColumn(name, isNullable, ColumnType.AnyBinary))
      else if (isLast) Seq(ArrowColumn(name, isNullable, ColumnType.FixedBinary(rowWidth)))
      else Seq(
        ArrowColumn(name, isNullable = true, ColumnType.FixedBinary(rowWidth)),
        ArrowColumn(ArrowColumn.otherOf(name), isNullable = true, ColumnType.AnyBinary))
  }

  /** Return the columns of the file. */
  def columns: Seq[ArrowColumn] = kinds

  /** Return the buffers of the columns. */
  def encoded(codec: BufferCodec): Seq[ColumnBuffers[Array[Byte]]] = {
    def zeros(length: Int) = codec.encode(new Array[Byte](length), length)
    def nulls(buffers: Array[Byte]*) = ColumnBuffers(count, zeros(bitBytes) +: buffers)
    def rows(buffers: Array[Byte]*) = {
      val bits = if (nullCount == 0) Array.emptyByteArray else codec.encode(validity(), bitBytes)
      ColumnBuffers(nullCount, bits +: buffers)
    }
    def anyRows = rows(codec.encode(offsets(), (count + 1) * 4), codec.encode(bytes, used))
    kinds.map(_.kind) match {
      case ColumnType.FixedBinary(width) +: other =>
        if (rowWidth == width || nullCount == count) {
          rows(codec.encode(fixedRows(width), count * width)) +:
            other.map(_ => nulls(zeros((count + 1) * 4), Array.emptyByteArray))
        } else Seq(nulls(zeros(count * width)), anyRows)
      case _ => Seq(anyRows)
    }
  }

  def clear(): Unit = {
    if (nullCount > 0) util.Arrays.fill(missing, 0.toByte)
    used = 0
    count = 0
    nullCount = 0
  }

  private def bitBytes: Int = (count + 7) / 8

  private def isNull(index: Int): Boolean = {
    val place = index >> 3
    place < missing.length && (missing(place) >> (index & 7) & 1) == 1
  }

  /** Return Arrow's validity bits: 1 for a value that is not null. */
  private def validity(): Array[Byte] = {
    val present = new Array[Byte](bitBytes)
    for (i <- present.indices) present(i) = (if (i < missing.length) ~missing(i) else -1).toByte
    if (count % 8 != 0) {
      val last = present.length - 1
      present(last) = (present(last) & (1 << count % 8) - 1).toByte
    }
    present
  }

  private def offsets(): Array[Byte] = {
    val buffer = ByteBuffer.allocate((count + 1) * 4).order(ByteOrder.LITTLE_ENDIAN)
    buffer.putInt(0)
    buffer.asIntBuffer.put(ends, 0, count)
    buffer.array
  }

  /** Return the rows, with zeros in place of nulls. */
  private def fixedRows(width: Int): Array[Byte] =
    if (nullCount == 0) bytes
    else {
      val spread = new Array[Byte](count * width)
      var from = 0
      var index = 0
      while (index < count) {
        if (!isNull(index)) {
          System.arraycopy(bytes, from, spread, index * width, width)
          from += width
        }
        index += 1
      }
      spread
    }

  /** Make room for a row. Returns the offset of the row. */
  private def roomForRow(length: Int): Int = {
    if (count == nullCount) rowWidth = length
    else if (rowWidth != length) rowWidth = Several
    room(length)
  }

  /** Make room for a value of this length. Returns the offset of the value. */
  private def room(length: Int): Int = {
    val from = used
    val end = Math.addExact(from, length)
    if (end > bytes.length) {
      val doubled = math.min(bytes.length * 2L, GrownBytes).toInt
      bytes = util.Arrays.copyOf(bytes, math.max(end, doubled))
    }
    if (count == ends.length) ends = util.Arrays.copyOf(ends, count * 2)
    ends(count) = end
    used = end
    count += 1
    from
  }
}

private object BinaryColumn {
  private val Several = -1

  /**
   * Limit for the fixed width of a column. In a column of fixed width, a null takes the width, too.
   * Wider rows are stored with offsets, because an offset is small compared to such a row.
   */
  private val MostWidth = 256

  /** Limit for arrays that grow by doubling, see ArrowRowsWriter.BatchBytes. */
  private val GrownBytes = 256 << 10
}
