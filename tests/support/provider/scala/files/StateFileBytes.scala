package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import java.io.{ByteArrayOutputStream, EOFException}

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateCorruptException, StateFileName
}
import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.{
  KeptRowChecksums, RowChecksums
}
import org.apache.spark.sql.execution.streaming.state.cowstate.files.{
  ArrowRowsReader, ArrowRowsWriter, BufferCodec, StateFileBatch, StateFileInput, StateFileMetadata
}

/** State files in memory: written from, and read as, lines of "key value", "-" for removed. */
final class StateFileBytes {
  import ScriptedRows._

  private val name = StateFileName(7, 3, "00000000000000aa", Some("00000000000000a9"))

  def write(rows: String): Array[Byte] = write(rows, RowChecksums.Off)

  def writeWithChecksums(rows: String): Array[Byte] =
    write(rows, new KeptRowChecksums(name.toString, 0))

  private def write(rows: String, checksums: RowChecksums): Array[Byte] = {
    val out = new ByteArrayOutputStream
    val shaped = shape(withPrefix = false)
    val writer = new ArrowRowsWriter(
      () => out,
      StateFileMetadata.header(
        name, StateFileMetadata.packed(shaped.keySchema, shaped.valueSchema)),
      checksums)
    rows.linesIterator.map(_.split(' ')).foreach { words =>
      val number = words(0).toLong
      if (words(1) == "-") writer.remove(key(number)) else writer.put(key(number), value(words(1)))
    }
    writer.finish()
    assert(writer.writtenBytes == out.size)
    out.toByteArray
  }

  /** A buffer of a record batch. */
  def encoded(bytes: Array[Byte]): Array[Byte] = new BufferCodec().encode(bytes, bytes.length)

  def read(bytes: Array[Byte]): String = {
    val reader = new ArrowRowsReader(new InputOf(bytes), name.toString, "a store")
    val lines = reader.groupsFrom(0).flatMap(reader.batches(_)).toSeq.flatMap(linesOf)
    assert(reader.rows == lines.size)
    lines.mkString("\n")
  }

  /** What the error says that reading these bytes comes to. */
  def message(bytes: Array[Byte]): String =
    try {
      read(bytes)
      "none"
    } catch { case e: CowStateCorruptException => e.getMessage }

  /**
   * What comes of each byte's being changed by `mask` in turn, a letter each: (r)efused as damaged
   * with the file's name, the (s)ame rows, or (x) something else.
   */
  def readFlipped(bytes: Array[Byte], mask: Int): String = {
    val whole = read(bytes)
    bytes.indices.map { position =>
      val damaged = bytes.clone()
      damaged(position) = (damaged(position) ^ mask).toByte
      outcome(damaged, whole)
    }.mkString
  }

  /** The same for each length that the file may be cut to. */
  def readCut(bytes: Array[Byte]): String = {
    val whole = read(bytes)
    bytes.indices.map(length => outcome(bytes.take(length), whole)).mkString
  }

  private def outcome(bytes: Array[Byte], whole: String): String =
    try {
      if (read(bytes) == whole) "s" else "x"
    } catch {
      case e: CowStateCorruptException => if (e.getMessage.contains(name.toString)) "r" else "x"
      case _: Throwable => "x"
    }

  private def linesOf(batch: StateFileBatch): Seq[String] = (0 until batch.rows).map { row =>
    val key = new UnsafeRow(KeyFields)
    val value = new UnsafeRow(ValueFields)
    batch.pointToKey(row, key)
    val text = if (batch.pointToValue(row, value)) showValue(value) else "-"
    s"${showKey(key)} $text"
  }
}

private final class InputOf(bytes: Array[Byte]) extends StateFileInput {
  override def length: Long = bytes.length

  override def readFully(position: Long, into: Array[Byte]): Unit = {
    if (position < 0 || position + into.length > bytes.length) throw new EOFException
    System.arraycopy(bytes, position.toInt, into, 0, into.length)
  }

  override def close(): Unit = ()
}
