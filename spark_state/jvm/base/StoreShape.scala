package org.apache.spark.sql.execution.streaming.state.cowstate.base

import org.apache.spark.sql.catalyst.expressions.{BoundReference, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/** Schemas of a store, and the number of key columns in the prefix (0: no prefix scan). */
private[cowstate] final case class StoreShape(
    keySchema: StructType, valueSchema: StructType, prefixColumns: Int) {
  def keyFields: Int = keySchema.length
  def valueFields: Int = valueSchema.length

  /**
   * Return a projection from a longer key, with more fields at the end, to the key of this store.
   * The projection reuses its row, so use the row at once.
   */
  def keyOfLonger(): UnsafeProjection =
    UnsafeProjection.create(keySchema.zipWithIndex.map { case (field, place) =>
      BoundReference(place, field.dataType, field.nullable)
    })

  def prefixOf(): Option[UnsafeRow => UnsafeRow] = Option.when(prefixColumns > 0) {
    val references = keySchema.take(prefixColumns).zipWithIndex.map { case (field, i) =>
      BoundReference(i, field.dataType, field.nullable)
    }
    val projection = UnsafeProjection.create(references)
    val whole = new UnsafeRow(keyFields)
    // Rows made of bytes alone, as in an undo log, do not know their number of fields.
    key => {
      whole.pointTo(key.getBaseObject, key.getBaseOffset, key.getSizeInBytes)
      projection(whole)
    }
  }
}

private[cowstate] object StoreShape {
  /**
   * Return the shape of a store. For a key encoding that only RocksDB supports, throws Spark's
   * error, which names the provider `name`.
   */
  def of(
      keySchema: StructType, valueSchema: StructType, keys: KeyStateEncoderSpec, name: String)
      : StoreShape = StoreShape(keySchema, valueSchema,
    keys match {
      case NoPrefixKeyStateEncoderSpec(_) => 0
      case PrefixKeyScanStateEncoderSpec(_, columns) => columns
      case RangeKeyScanStateEncoderSpec(_, _) =>
        throw StateStoreErrors.unsupportedOperationException("Range scan", name)
      case other =>
        throw StateStoreErrors.unsupportedOperationException(other.getClass.getSimpleName, name)
    })
}
