package org.apache.spark.sql.execution.streaming.state.cowstate.files

import java.io.{BufferedOutputStream, OutputStream}
import java.nio.{ByteBuffer, ByteOrder}
import java.util
import java.util.zip.CRC32

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.RowChecksums
import org.apache.spark.unsafe.Platform

/**
 * Writer of a state file in the Arrow IPC format, see ArrowIpc. The file has record batches with
 * the rows in the order in which they were put. The metadata of the footer's schema holds:
 *
 *   - `header`, and the number of rows;
 *   - the CRC-32 of each record batch (message and body);
 *   - the CRC-32 of the footer, computed with zeros in place of the eight digits of this CRC-32.
 *
 * `open` is called just before the first bytes are written. If the rows are few, the first bytes
 * are written in `finish`. The rows carry checksums unless `checksums` are off.
 */
final class ArrowRowsWriter(
    open: () => OutputStream,
    header: Seq[(String, String)],
    checksums: RowChecksums = RowChecksums.Off) {
  import ArrowRowsWriter._

  private val buffers = new BufferCodec
  private val keys = new BinaryColumn(ArrowColumn.Key, isNullable = false)
  private val values = new BinaryColumn(ArrowColumn.Value, isNullable = true)
  private val sums = checksums.algorithm.map(_ => new IntColumn)
  private val blocks = mutable.ArrayBuffer.empty[ArrowIpc.FileBlock]
  private val blockSums = mutable.ArrayBuffer.empty[String]
  private var out: OutputStream = _
  private var position = 0L
  private var total = 0L
  private var uncompressed = 0L

  /** Bytes written so far; the whole file after `finish`. */
  def writtenBytes: Long = position

  /** Bytes of the keys and values, before compression. */
  def rowBytes: Long = uncompressed + keys.dataBytes + values.dataBytes

  def rows: Long = total + keys.length

  /** Put a row that has no checksum yet. */
  def put(key: UnsafeRow, value: UnsafeRow): Unit = put(key, value, checksums.of(key, value))

  def put(key: UnsafeRow, value: UnsafeRow, checksum: Int): Unit = {
    keys.append(key)
    values.append(value)
    if (sums.isDefined) sums.get.append(checksum)
    flushIfFull()
  }

  def remove(key: UnsafeRow): Unit = {
    keys.append(key)
    values.appendNull()
    if (sums.isDefined) sums.get.append(checksums.of(key, null))
    flushIfFull()
  }

  /**
   * Put a row from memory; (`base`, `keyOffset`) is an address in the sense of Platform, and the
   * value follows the key.
   */
  def put(
      base: AnyRef, keyOffset: Long, keyLength: Int, valueLength: Int, checksum: Int): Unit = {
    keys.append(base, keyOffset, keyLength)
    values.append(base, keyOffset + keyLength, valueLength)
    if (sums.isDefined) sums.get.append(checksum)
    flushIfFull()
  }

  /** Write the remaining rows and the footer. The caller closes the stream. */
  def finish(): Unit = {
    if (keys.length > 0) flush(isLast = true)
    begin(isLast = true)
    write(EndOfStream)
    val metadata = header ++ checksums.algorithm.map(StateFileMetadata.RowChecksum -> _) ++ Seq(
      StateFileMetadata.Rows -> total.toString,
      StateFileMetadata.BlockChecksums -> blockSums.mkString(","),
      StateFileMetadata.FooterChecksum -> StateFileMetadata.NoChecksum)
    val footer = ArrowIpc.footer(blocks.toSeq, columns, metadata)
    StateFileMetadata.seal(footer)
    write(footer)
    write(ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(footer.length).array)
    write(ArrowIpc.Magic)
    out.flush()
  }

  private def flushIfFull(): Unit =
    if (keys.dataBytes + values.dataBytes >= BatchBytes) flush(isLast = false)

  private def columns: Seq[ArrowColumn] =
    keys.columns ++ values.columns ++ sums.map(_ => ArrowColumn.Checksum)

  private def flush(isLast: Boolean): Unit = {
    begin(isLast)
    val encoded = keys.encoded(buffers) ++ values.encoded(buffers) ++ sums.map { column =>
      ColumnBuffers(0, Seq(Array.emptyByteArray, buffers.encode(column.data, column.length * 4)))
    }
    var at = 0L
    val places = encoded.map { column =>
      column.copy(buffers = column.buffers.map { buffer =>
        val place = ArrowIpc.Place(at, buffer.length)
        at += ArrowIpc.padded(buffer.length)
        place
      })
    }
    val message = ArrowIpc.recordBatchMessage(keys.length, places, at)
    val crc = new CRC32
    blocks += ArrowIpc.FileBlock(position, message.length, at)
    writeSummed(message, crc)
    encoded.flatMap(_.buffers).foreach { buffer =>
      writeSummed(buffer, crc)
      writeSummed(Padding.take(ArrowIpc.padded(buffer.length) - buffer.length), crc)
    }
    blockSums += StateFileMetadata.hex(crc)
    total += keys.length
    uncompressed += keys.dataBytes + values.dataBytes
    keys.clear()
    values.clear()
    sums.foreach(_.clear())
  }

  /** Begin the file, unless it has begun. `isLast`: no record batch follows the present rows. */
  private def begin(isLast: Boolean): Unit = if (out == null) {
    keys.choose(isLast)
    values.choose(isLast)
    // Buffer the output, because a record batch has many parts, and most of them are short.
    out = new BufferedOutputStream(open(), BufferBytes)
    write(ArrowIpc.Magic)
    write(Padding.take(2))
    write(ArrowIpc.schemaMessage(columns))
  }

  private def writeSummed(bytes: Array[Byte], crc: CRC32): Unit = {
    crc.update(bytes)
    write(bytes)
  }

  private def write(bytes: Array[Byte]): Unit = {
    out.write(bytes)
    position += bytes.length
  }
}

private object ArrowRowsWriter {
  /**
   * Size limit of a record batch: the batch ends with the row that reaches the limit. The limit is
   * small because G1 marks the whole heap again and again if a writer has humongous arrays. Only a
   * very long row can still make an array humongous.
   */
  private val BatchBytes = 240 << 10
  /** Size of the output buffer. Longer parts go to the file directly. */
  private val BufferBytes = 8 << 10
  private val Padding = new Array[Byte](8)
  private val EndOfStream = Array[Byte](-1, -1, -1, -1, 0, 0, 0, 0)

  /** A growing column of type int32. */
  private final class IntColumn {
    private var bytes = new Array[Byte](256)
    private var count = 0

    def length: Int = count
    def data: Array[Byte] = bytes

    def append(value: Int): Unit = {
      if (count * 4 == bytes.length) bytes = util.Arrays.copyOf(bytes, bytes.length * 2)
      Platform.putInt(bytes, Platform.BYTE_ARRAY_OFFSET + count * 4, value)
      count += 1
    }

    def clear(): Unit = count = 0
  }
}
