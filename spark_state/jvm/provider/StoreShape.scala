package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.sql.catalyst.expressions.{BoundReference, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.types.StructType

/** The schemas of a store, and how many columns of the key are its prefix (0: no prefix scan). */
private[cowstate] final case class StoreShape(
    keySchema: StructType, valueSchema: StructType, prefixColumns: Int) {
  def keyFields: Int = keySchema.length
  def valueFields: Int = valueSchema.length

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
