package org.apache.spark.sql.execution.streaming.state.cowstate.files

import java.io.ByteArrayOutputStream
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.Base64
import java.util.zip.{CRC32, DeflaterOutputStream}

import scala.util.Using
import scala.util.control.NonFatal

import org.apache.arrow.flatbuf.Footer
import org.apache.spark.sql.execution.streaming.state.cowstate.base.StateFileName
import org.apache.spark.sql.types.StructType

/** Metadata keys of a state file, and the checksum of the footer. */
private[cowstate] object StateFileMetadata {
  val Format = "cowstate.format"
  val FormatVersion = "1"
  val Kind = "cowstate.kind"
  val Version = "cowstate.version"
  val Unique = "cowstate.unique"
  val Base = "cowstate.base"
  /** Number of versions in a merged file. */
  val Versions = "cowstate.versions"
  val Schemas = "cowstate.schemas"
  val Rows = "cowstate.rows"
  /** Algorithm of the column `checksum`, in files with row checksums. */
  val RowChecksum = "cowstate.row_checksum"
  val BlockChecksums = "cowstate.batch_crc32"
  val FooterChecksum = "cowstate.footer_crc32"
  val NoChecksum = "00000000"

  /** Return the metadata that the name gives. `schemas`: schemas of key and value, see `packed`. */
  def header(name: StateFileName, schemas: String): Seq[(String, String)] = Seq(
    Format -> FormatVersion,
    Kind -> name.kind,
    Version -> name.version.toString,
    Unique -> name.unique,
    Base -> name.base.getOrElse(""),
    Schemas -> schemas) ++ Option.when(name.isMerged)(Versions -> name.versions.toString)

  /** Return two lines with the JSON of the schemas, compressed with zlib, in Base64. */
  def packed(key: StructType, value: StructType): String = {
    val bytes = new ByteArrayOutputStream
    Using.resource(new DeflaterOutputStream(bytes)) {
      _.write(s"${key.json}\n${value.json}".getBytes(UTF_8))
    }
    Base64.getEncoder.encodeToString(bytes.toByteArray)
  }

  def hex(crc: CRC32): String = f"${crc.getValue}%08x"

  def of(footer: Footer): Map[String, String] = {
    val schema = footer.schema
    (0 until schema.customMetadataLength).map { i =>
      val pair = schema.customMetadata(i)
      pair.key -> pair.value
    }.toMap
  }

  /** Put the checksum into a footer that was made with `NoChecksum`. */
  def seal(footer: Array[Byte]): Unit = {
    val crc = new CRC32
    crc.update(footer)
    hex(crc).getBytes(UTF_8).copyToArray(footer, checksumPosition(footer))
  }

  /**
   * True if the bytes are a footer that has not changed since `seal`. Any bytes may be passed, also
   * bytes without room for a checksum.
   */
  def isIntact(footer: Array[Byte]): Boolean = {
    val position =
      try checksumPosition(footer)
      catch { case NonFatal(_) => return false }
    if (position < 0 || position + NoChecksum.length > footer.length) return false
    val stored = new String(footer, position, NoChecksum.length, UTF_8)
    val copy = footer.clone()
    NoChecksum.getBytes(UTF_8).copyToArray(copy, position)
    val crc = new CRC32
    crc.update(copy)
    hex(crc) == stored
  }

  private def checksumPosition(bytes: Array[Byte]): Int = {
    val schema =
      Footer.getRootAsFooter(ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN)).schema
    val index = (0 until schema.customMetadataLength)
      .find(i => schema.customMetadata(i).key == FooterChecksum)
    schema.customMetadata(index.get).valueAsByteBuffer.position()
  }
}
