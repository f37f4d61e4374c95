package org.apache.spark.sql.execution.streaming.state.cowstate.bytes

import java.util.zip.CRC32C

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.StateStoreConf
import org.apache.spark.sql.execution.streaming.state.cowstate.spark.OfSpark
import org.apache.spark.unsafe.Platform

/**
 * Checksums of rows, switched on by spark.sql.streaming.stateStore.rowChecksum.enabled. A checksum
 * is computed when a row enters the store, and travels with the row in records, undo logs,
 * changelogs and snapshots. A checksum is verified when the row comes from a file, before the row
 * goes to a snapshot, and at every n-th read.
 *
 * The checksum is Spark's: CRC-32C over the bytes of key and value, or of the key alone if the row
 * was removed. Each state in memory has its own instance, and the instance remembers whether a row
 * was damaged.
 */
sealed abstract class RowChecksums {
  /** Name of the checksum algorithm, for the files; None if rows have no checksums. */
  def algorithm: Option[String]

  /** Return the checksum of a row. `value` is null for a removed row. */
  def of(key: UnsafeRow, value: UnsafeRow): Int

  /**
   * Count a read of a row. Every n-th read verifies the row. The row is `length` bytes of key and
   * value, at the address (`base`, `offset`) in the sense of Platform.
   */
  def read(base: AnyRef, offset: Long, length: Int, checksum: Int): Unit

  /** Throws Spark's error unless the row has this checksum. */
  def verify(base: AnyRef, offset: Long, length: Int, checksum: Int): Unit

  /** True if a row was found to be damaged. */
  def foundDamage: Boolean
}

object RowChecksums {
  val Crc32c = "crc32c"

  def apply(conf: StateStoreConf, owner: String): RowChecksums =
    OfSpark.rowChecksumRatio(conf).map(new KeptRowChecksums(owner, _)).getOrElse(Off)

  /** Rows without checksums; records hold a 0 instead. */
  object Off extends RowChecksums {
    override def algorithm: Option[String] = None
    override def of(key: UnsafeRow, value: UnsafeRow): Int = 0
    override def read(base: AnyRef, offset: Long, length: Int, checksum: Int): Unit = ()
    override def verify(base: AnyRef, offset: Long, length: Int, checksum: Int): Unit = ()
    override def foundDamage: Boolean = false
  }

  def crc32cOf(key: UnsafeRow, value: UnsafeRow): Int = {
    val crc = new CRC32C
    update(crc, key)
    if (value != null) update(crc, value)
    crc.getValue.toInt
  }

  private def update(crc: CRC32C, row: UnsafeRow): Unit =
    update(crc, row.getBaseObject, row.getBaseOffset, row.getSizeInBytes)

  private[cowstate] def update(crc: CRC32C, base: AnyRef, offset: Long, length: Int): Unit =
    base match {
      case bytes: Array[Byte] =>
        crc.update(bytes, (offset - Platform.BYTE_ARRAY_OFFSET).toInt, length)
      case _ =>
        val bytes = new Array[Byte](length)
        Platform.copyMemory(base, offset, bytes, Platform.BYTE_ARRAY_OFFSET, length)
        crc.update(bytes)
    }
}

/**
 * Checksums of rows, verified at every `ratio`-th read.
 *
 * @param owner name of the store, for the error
 * @param ratio number of reads of which one is verified; 0 if no read is verified. Reads by several
 *              threads at once may count as one read
 */
private[cowstate] final class KeptRowChecksums(owner: String, ratio: Long) extends RowChecksums {
  @volatile private var damaged = false
  private var reads = 0L

  override def algorithm: Option[String] = Some(RowChecksums.Crc32c)

  override def of(key: UnsafeRow, value: UnsafeRow): Int = RowChecksums.crc32cOf(key, value)

  override def read(base: AnyRef, offset: Long, length: Int, checksum: Int): Unit =
    if (ratio != 0) {
      reads += 1
      if (reads % ratio == 0) verify(base, offset, length, checksum)
    }

  override def verify(base: AnyRef, offset: Long, length: Int, checksum: Int): Unit = {
    val crc = new CRC32C
    RowChecksums.update(crc, base, offset, length)
    val computed = crc.getValue.toInt
    if (computed != checksum) {
      damaged = true
      throw OfSpark.rowChecksumFailed(owner, checksum, computed)
    }
  }

  override def foundDamage: Boolean = damaged
}
