package org.apache.spark.sql.execution.streaming.state.cowstate.files

import java.io.Closeable
import java.nio.{ByteBuffer, ByteOrder}
import java.util
import java.util.zip.CRC32

import scala.util.control.NonFatal

import org.apache.arrow.flatbuf.Footer
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateCorruptException, CowStateException, NotAsWritten, StateFileReadException
}
import org.apache.spark.sql.execution.streaming.state.cowstate.base.NotAsWritten.check
import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.RowChecksums
import org.apache.spark.sql.execution.streaming.state.cowstate.spark.OfSpark
import org.apache.spark.unsafe.Platform

/** A file that is read by position. */
trait StateFileInput extends Closeable {
  def length: Long
  def readFully(position: Long, into: Array[Byte]): Unit
}

/**
 * Rows of a column of type binary. In a column of fixed width, each row has `width` bytes of
 * `data`. Otherwise `width` is 0, and `ends` has the begin and end of each row in `data`.
 * `validity` has Arrow's validity bits, and `nulls` is the number of nulls.
 */
private[cowstate] final class BinaryBuffers(
    validity: Array[Byte], width: Int, ends: ByteBuffer, data: Array[Byte], nulls: Int) {

  /** Bytes of the rows. */
  def rowBytes: Long = data.length - nulls.toLong * width

  /** Point `row` at the bytes of a row. Returns false for null. */
  def point(index: Int, row: UnsafeRow): Boolean = {
    val present = validity.length == 0 || ((validity(index >> 3) >> (index & 7)) & 1) == 1
    if (present) {
      if (width > 0) {
        row.pointTo(data, Platform.BYTE_ARRAY_OFFSET + index * width, width)
      } else {
        val from = ends.getInt(index * 4)
        row.pointTo(data, Platform.BYTE_ARRAY_OFFSET + from, ends.getInt(index * 4 + 4) - from)
      }
    }
    present
  }
}

/** Rows of a record batch. */
final class StateFileBatch private[cowstate] (
    val rows: Int, keys: BinaryBuffers, values: BinaryBuffers, checksums: Option[ByteBuffer]) {

  /** Bytes of the keys and values. */
  def rowBytes: Long = keys.rowBytes + values.rowBytes

  /** Checksums stored with the rows, by row number; None if the file has no checksums. */
  def carried: Option[Int => Int] = checksums.map(sums => index => sums.getInt(index * 4))

  def pointToKey(index: Int, row: UnsafeRow): Unit = keys.point(index, row)

  /** Point `row` at a value. Returns false if the key was removed. */
  def pointToValue(index: Int, row: UnsafeRow): Boolean = values.point(index, row)
}

/**
 * Reader and verifier of a state file written by ArrowRowsWriter. Opening verifies magic, length
 * and the checksum of the footer. Reading a record batch verifies the checksum of the batch, then
 * the checksums of the rows, if the file has any. Throws CowStateCorruptException if the bytes
 * differ from the written bytes, and StateFileReadException if the file cannot be read now; both
 * name the file.
 *
 * @param owner name of the store, for Spark's error about a row
 */
final class ArrowRowsReader(input: StateFileInput, name: String, owner: String) {
  private val footer = verified("its footer") {
    val end = new Array[Byte](10)
    check(input.length > 0, "it is empty, as after a power failure before it was on the disk")
    check(input.length > 20, s"it has ${input.length} bytes, too few for a state file")
    read(input.length - 10, end)
    check(end.drop(4).sameElements(ArrowIpc.Magic), "it does not end with ARROW1")
    val length = ByteBuffer.wrap(end).order(ByteOrder.LITTLE_ENDIAN).getInt(0)
    check(length > 0 && length < input.length - 10, "the length of its footer is wrong")
    val bytes = new Array[Byte](length)
    read(input.length - 10 - length, bytes)
    check(StateFileMetadata.isIntact(bytes), "the checksum of its footer differs")
    Footer.getRootAsFooter(ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN))
  }

  val metadata: Map[String, String] = StateFileMetadata.of(footer)
  private val rowChecksum = metadata.get(StateFileMetadata.RowChecksum)

  {
    val format = metadata.getOrElse(StateFileMetadata.Format, "none")
    if (format != StateFileMetadata.FormatVersion) {
      throw new CowStateException(
        s"$name has format $format; this release reads ${StateFileMetadata.FormatVersion}. Use " +
          "the release that wrote it, or a later one")
    }
    rowChecksum.filter(_ != RowChecksums.Crc32c).foreach { algorithm =>
      throw new CowStateException(
        s"$name has row checksums of $algorithm; this release knows ${RowChecksums.Crc32c}. Use " +
          "a later one")
    }
  }

  private val checksums =
    metadata(StateFileMetadata.BlockChecksums).split(',').filter(_.nonEmpty)
  verified("its footer") {
    check(
      checksums.length == batchCount,
      s"it has $batchCount record batches, ${checksums.length} checksums")
  }
  private val columns = verified("its footer")(ArrowIpc.columnsOf(footer.schema))

  def rows: Long = metadata(StateFileMetadata.Rows).toLong
  def batchCount: Int = footer.recordBatchesLength

  /** Return consecutive record batches, with one read. */
  def batches(indexes: Range): Iterator[StateFileBatch] = {
    // Lazy, so that an error here is reported as an error of the file.
    lazy val start = footer.recordBatches(indexes.head).offset
    val bytes = verified(s"record batch ${indexes.head}") {
      val all = new Array[Byte](Math.toIntExact(endOf(indexes.last) - start))
      read(start, all)
      all
    }
    indexes.iterator.map { index =>
      verified(s"record batch $index") {
        val from = Math.toIntExact(footer.recordBatches(index).offset - start)
        val until = Math.toIntExact(endOf(index) - start)
        batchOf(index, util.Arrays.copyOfRange(bytes, from, until))
      }
    }
  }

  /** Return the numbers of the record batches from `first` on, in groups that are read together. */
  def groupsFrom(first: Int): Iterator[Range] = Iterator.unfold(first) { from =>
    Option.when(from < batchCount) {
      val mostEnd = footer.recordBatches(from).offset + ArrowRowsReader.GroupBytes
      var until = from + 1
      while (until < batchCount && endOf(until) <= mostEnd) until += 1
      (from until until, until)
    }
  }

  private def endOf(index: Int): Long = {
    val block = footer.recordBatches(index)
    block.offset + block.metaDataLength + block.bodyLength
  }

  private def batchOf(index: Int, bytes: Array[Byte]): StateFileBatch = {
    val block = footer.recordBatches(index)
    val crc = new CRC32
    crc.update(bytes)
    check(
      StateFileMetadata.hex(crc) == checksums(index), s"record batch $index: its checksum differs")
    val (rows, stored) = ArrowIpc.parseRecordBatch(bytes, columns)
    def decoded(name: String): Seq[Array[Byte]] = stored(name).buffers.map { place =>
      val offset = Math.toIntExact(block.metaDataLength + place.offset)
      BufferCodec.decode(bytes, offset, place.length.toInt)
    }
    def rowsOf(name: String): BinaryBuffers = {
      val other = ArrowColumn.otherOf(name)
      val holder = if (stored.get(other).exists(_.nulls < rows)) other else name
      val nulls = stored(holder).nulls
      columns.find(_.name == holder).map(column => (column.kind, decoded(holder))) match {
        case Some((ColumnType.FixedBinary(width), Seq(validity, data))) =>
          require(data.length == rows.toLong * width, s"${data.length} bytes of $rows rows")
          new BinaryBuffers(validity, width, ints(Array.emptyByteArray), data, nulls)
        case Some((ColumnType.AnyBinary, Seq(validity, ends, data))) =>
          new BinaryBuffers(validity, 0, ints(ends), data, nulls)
        case found => throw new IllegalArgumentException(s"$name has the type $found")
      }
    }
    val carried = rowChecksum.map(_ => ints(decoded(ArrowColumn.Checksum.name).last))
    val batch =
      new StateFileBatch(rows, rowsOf(ArrowColumn.Key), rowsOf(ArrowColumn.Value), carried)
    batch.carried.foreach(verifyRows(index, batch, _))
    batch
  }

  private def verifyRows(index: Int, batch: StateFileBatch, carried: Int => Int): Unit = {
    val key = new UnsafeRow(0)
    val value = new UnsafeRow(0)
    for (row <- 0 until batch.rows) {
      batch.pointToKey(row, key)
      val present = batch.pointToValue(row, value)
      val computed = RowChecksums.crc32cOf(key, if (present) value else null)
      if (computed != carried(row)) {
        throw new CowStateCorruptException(
          name, s"record batch $index: a row's checksum differs",
          OfSpark.rowChecksumFailed(owner, carried(row), computed))
      }
    }
  }

  private def ints(bytes: Array[Byte]): ByteBuffer =
    ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN)

  private def read(position: Long, into: Array[Byte]): Unit =
    StateFileReadException.about(name)(input.readFully(position, into))

  private def verified[T](what: String)(f: => T): T = {
    try f
    catch {
      case e @ (_: StateFileReadException | _: CowStateException) => throw e
      case e: NotAsWritten => throw new CowStateCorruptException(name, e.getMessage, e)
      case NonFatal(e) =>
        throw new CowStateCorruptException(name, s"$what is not what was written", e)
    }
  }
}

private object ArrowRowsReader {
  /** A distant store answers a few large reads sooner than many small reads. */
  private val GroupBytes = 1L << 20
}
