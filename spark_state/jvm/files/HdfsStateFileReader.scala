package org.apache.spark.sql.execution.streaming.state.cowstate.files

import java.io.{DataInputStream, EOFException, FileNotFoundException, FilterInputStream}
import java.io.{IOException, InputStream}

import scala.util.Using
import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.{SparkConf, SparkEnv}
import org.apache.spark.io.CompressionCodec
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateCorruptException, CowStateException, CowStateMissingException, HdfsStateFile,
  NotAsWritten, StateFileReadException, StoreShape, WaysOut
}
import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.{RowChecksums, Words}
import org.apache.spark.unsafe.Platform

/**
 * Reader of the files of Spark's provider. A file is int key length (-1 at the end), key, int value
 * length (negative: removed), value, and so on, compressed by Spark's codec. With row checksums, 4
 * bytes precede each value and each removed key, and the reader verifies the checksums. Values of
 * very old files have 4 extra bytes at the end.
 */
private[cowstate] final class HdfsStateFileReader(
    directory: Path, conf: Configuration, codecName: String) {
  private lazy val manager = CheckpointFileManager.create(directory, conf)
  private lazy val codec =
    try {
      CompressionCodec.createCodec(
        Option(SparkEnv.get).map(_.conf).getOrElse(new SparkConf), codecName)
    } catch {
      case NonFatal(e) => throw new CowStateException(
          s"spark.sql.streaming.stateStore.compression.codec is '$codecName'; allowed are " +
            CompressionCodec.shortCompressionCodecNames.keys.toSeq.sorted.mkString(", ") +
            ", and the names of the codecs' classes", e)
    }

  /**
   * Return the rows of a file in order: key, value (null: removed). Throws CowStateCorruptException
   * or StateFileReadException; both name the file.
   */
  def rowsOf(file: HdfsStateFile, shape: StoreShape): Seq[(UnsafeRow, UnsafeRow)] = {
    val rows = Seq.newBuilder[(UnsafeRow, UnsafeRow)]
    foreach(file, RowChecksums.Off) { (key, value) =>
      rows += ((copied(key, shape.keyFields), copied(value, shape.valueFields)))
    }
    rows.result()
  }

  private def copied(row: UnsafeRow, fields: Int): UnsafeRow =
    if (row == null) null
    else {
      val bytes = row.getBytes
      Words.rowOf(bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length, fields)
    }

  /**
   * Call `f` with the key and the value of each row of a file; the value is null if the key was
   * removed. The next call gets the same row objects with other bytes, so copy a row to keep the
   * row. Throws CowStateCorruptException or StateFileReadException; both name the file.
   */
  def foreach(file: HdfsStateFile, checksums: RowChecksums)(
      f: (UnsafeRow, UnsafeRow) => Unit): Unit = {
    val path = new Path(directory, file.toString)
    try {
      Using.resource(new DataInputStream(codec.compressedInputStream(open(path)))) { in =>
        val key = new UnsafeRow(0)
        val value = new UnsafeRow(0)
        var keyLength = in.readInt()
        while (keyLength != -1) {
          NotAsWritten.check(keyLength >= 0, s"it has a key of $keyLength bytes")
          val keyBytes = read(in, keyLength)
          val valueLength = in.readInt()
          if (valueLength < 0) {
            pointToRemoved(key, keyBytes)
            f(key, null)
          } else {
            key.pointTo(keyBytes, keyLength)
            pointToValue(value, key, read(in, valueLength), checksums)
            f(key, value)
          }
          keyLength = in.readInt()
        }
      }
    } catch {
      case e: CowStateException => throw e
      case e: StateFileReadException => throw e
      case e: NotAsWritten => throw new CowStateCorruptException(path.toString, e.getMessage, e)
      case e: EOFException =>
        throw new CowStateCorruptException(path.toString, "it ends before its last row", e)
      case e @ (_: IOException | _: IllegalArgumentException) =>
        throw new CowStateCorruptException(path.toString, "it cannot be decompressed", e)
    }
  }

  private def open(path: Path): InputStream = {
    val file = path.toString
    val input =
      try StateFileReadException.about(file)(manager.open(path))
      catch {
        case e: StateFileReadException if e.getCause.isInstanceOf[FileNotFoundException] =>
          throw new CowStateMissingException(
            s"$path is missing. Restore it ${WaysOut.restoreOrRestartWithout(file)}", file)
      }
    new FilterInputStream(input) {
      override def read(): Int = StateFileReadException.about(file)(in.read())
      override def read(into: Array[Byte], from: Int, count: Int): Int =
        StateFileReadException.about(file)(in.read(into, from, count))
    }
  }

  private def pointToRemoved(key: UnsafeRow, bytes: Array[Byte]): Unit =
    if (bytes.length % 8 == 0) {
      key.pointTo(bytes, bytes.length)
    } else {
      pointBehindChecksum(key, bytes)
      NotAsWritten.check(
        RowChecksums.crc32cOf(key, null) == checksumOf(bytes), "a row's checksum differs")
    }

  private def pointToValue(
      value: UnsafeRow, key: UnsafeRow, bytes: Array[Byte], checksums: RowChecksums): Unit = {
    if (bytes.length % 8 == 4) {
      pointBehindChecksum(value, bytes)
      if (RowChecksums.crc32cOf(key, value) == checksumOf(bytes)) return
      NotAsWritten.check(checksums.algorithm.isEmpty, "a row's checksum differs")
    }
    value.pointTo(bytes, bytes.length / 8 * 8)
  }

  private def pointBehindChecksum(row: UnsafeRow, bytes: Array[Byte]): Unit =
    row.pointTo(bytes, Platform.BYTE_ARRAY_OFFSET + 4, bytes.length - 4)

  private def checksumOf(bytes: Array[Byte]): Int =
    Platform.getInt(bytes, Platform.BYTE_ARRAY_OFFSET)

  private def read(in: DataInputStream, length: Int): Array[Byte] = {
    val bytes = new Array[Byte](length)
    in.readFully(bytes)
    bytes
  }
}
