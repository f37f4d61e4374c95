package org.apache.spark.sql.execution.streaming.state.cowstate.files

/** Type of a column, with the number of the column's buffers in a record batch. */
private[cowstate] sealed abstract class ColumnType(val buffers: Int)

private[cowstate] object ColumnType {
  case object Int32 extends ColumnType(2)
  case object AnyBinary extends ColumnType(3)
  final case class FixedBinary(width: Int) extends ColumnType(2)
}

/**
 * Column of a state file:
 *
 *   key          binary of one width if all keys have one width, else binary; never null, except
 *                for the keys that `other_key` has
 *   other_key    binary, only beside a `key` of one width in a file of several record batches: in a
 *                record batch whose keys have not all this width, all keys; otherwise null
 *   value        as `key`; null: the key was removed, or `other_value` has the value
 *   other_value  as `other_key`
 *   checksum     int32, never null, in files of rows with checksums only (see RowChecksums)
 *
 * The columns are written before the second record batch is known.
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
