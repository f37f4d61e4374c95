package org.apache.spark.sql.execution.streaming.state.cowstate.jobs

import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.expressions.{BoundReference, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning
import org.apache.spark.sql.execution.streaming.state.cowstate.base.CowStateException
import org.apache.spark.sql.execution.streaming.state.cowstate.spark.OfSpark
import org.apache.spark.sql.types.StructType

/**
 * Assignment of the rows of a store to partitions: Spark's hash of the columns of the key by which
 * the operator shuffles.
 *
 * @param columns   columns of the key; none if all rows are in the only partition
 * @param columnsOf takes the row of these columns out of a key
 */
private[cowstate] final class StorePartitioning private (
    val columns: StructType, columnsOf: UnsafeRow => UnsafeRow) {

  /**
   * Return a function that gives the partition of a key among `partitions` partitions. Only one
   * thread may use the function.
   */
  def partitionOf(partitions: Int): UnsafeRow => Int = {
    val references = columns.fields.toSeq.zipWithIndex.map { case (field, i) =>
      BoundReference(i, field.dataType, field.nullable)
    }
    val hash = HashPartitioning(references, partitions).partitionIdExpression
    val projection = UnsafeProjection.create(Seq(hash))
    key => projection(columnsOf(key)).getInt(0)
  }
}

private[cowstate] object StorePartitioning {
  private val Limit = "globalLimit"
  private val JoinFormat = "spark.sql.streaming.join.stateFormatVersion"

  /**
   * Return the partitioning of a store. Throws CowStateException for an operator whose partitioning
   * Spark does not tell. A limit, and an aggregation without keys, have one partition with all
   * rows.
   */
  def of(
      operatorName: String,
      store: String,
      keySchema: StructType,
      settings: Map[String, String]): StorePartitioning =
    if (operatorName == Limit || keySchema.isEmpty) {
      new StorePartitioning(new StructType, identity)
    } else {
      try {
        val joinFormat = settings.getOrElse(JoinFormat, "2").toInt
        val (columns, columnsOf) = OfSpark.partitionKey(operatorName, store, keySchema, joinFormat)
        new StorePartitioning(columns, columnsOf)
      } catch {
        case NonFatal(e) =>
          throw new CowStateException(
            s"Spark does not tell to which partition a key of the operator $operatorName belongs. " +
              "To get another number of partitions, start the query with a new checkpoint", e)
      }
    }
}
