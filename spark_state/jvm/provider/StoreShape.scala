package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.sql.catalyst.expressions.{BoundReference, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/** The schemas of a store, and how many columns of the key are its prefix (0: no prefix scan). */
private[cowstate] final case class StoreShape(
    keySchema: StructType, valueSchema: StructType, prefixColumns: Int) {
  def keyFields: Int = keySchema.length
  def valueFields: Int = valueSchema.length

  /** The key of this store, of a key that has more fields behind it. The row is used at once. */
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
    // Rows that are made of bytes alone, as in an undo log, do not know how many fields they have.
    key => {
      whole.pointTo(key.getBaseObject, key.getBaseOffset, key.getSizeInBytes)
      projection(whole)
    }
  }
}

private[cowstate] object StoreShape {
  /** Throws Spark's error, of the provider `name`, for keys that it has for RocksDB only. */
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
