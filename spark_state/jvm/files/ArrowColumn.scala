package org.apache.spark.sql.execution.streaming.state.cowstate.files

/** Type of a column, with the number of the column's buffers in a record batch. */
private[cowstate] sealed abstract class ColumnType(val buffers: Int)

private[cowstate] object ColumnType {
  case object Int32 extends ColumnType(2)
  case object AnyBinary extends ColumnType(3)
  final case class FixedBinary(width: Int) extends ColumnType(2)
}

/**
 * Column of a state file. The columns are chosen by the first record batch, before the second
 * record batch is known:
 *
 *   key          binary of fixed width if all keys of the first record batch have one width (of at
 *                most 256 bytes), otherwise binary. Null only in record batches whose keys are in
 *                `other_key`
 *   other_key    binary; only if `key` has a fixed width and the file has several record batches.
 *                If a record batch has a key of another width, all keys of the record batch are
 *                here; otherwise null
 *   value        as `key`; null: the key was removed, or the value is in `other_value`
 *   other_value  as `other_key`
 *   checksum     int32, never null; only in files of rows with checksums (see RowChecksums)
 */
private[cowstate] final case class ArrowColumn(name: String, isNullable: Boolean, kind: ColumnType)

private[cowstate] object ArrowColumn {
  val Key = "key"
  val Value = "value"
  val Checksum: ArrowColumn = ArrowColumn("checksum", isNullable = false, ColumnType.Int32)

  /** Return the name of the column with the values that do not fit into the column `name`. */
  def otherOf(name: String): String = s"other_$name"
}

/** A column of a record batch: the number of nulls, and the buffers. */
private[cowstate] final case class ColumnBuffers[T](nulls: Int, buffers: Seq[T])
