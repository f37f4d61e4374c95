package org.apache.spark.sql.execution.streaming.state.cowstate

import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.expressions.{BoundReference, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning
import org.apache.spark.sql.execution.streaming.operators.stateful.StatePartitionKeyExtractorFactory
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/**
 * Which partition the rows of a store are in: Spark's hash of the columns of the key by which its
 * operator shuffles.
 *
 * @param columns of the key; none if all rows are in the only partition
 */
private[cowstate] final class StorePartitioning private (
    val columns: StructType, extractor: StatePartitionKeyExtractor) {

  /** The partition of a key, of so many. For one thread. */
  def partitionOf(partitions: Int): UnsafeRow => Int = {
    val references = columns.fields.toSeq.zipWithIndex.map { case (field, i) =>
      BoundReference(i, field.dataType, field.nullable)
    }
    val hash = HashPartitioning(references, partitions).partitionIdExpression
    val projection = UnsafeProjection.create(Seq(hash))
    key => projection(extractor.partitionKey(key)).getInt(0)
  }
}

private[cowstate] object StorePartitioning {
  private val Limit = "globalLimit"
  private val JoinFormat = "spark.sql.streaming.join.stateFormatVersion"

  /**
   * Throws CowStateException for an operator whose partitioning Spark does not tell. A limit, and an
   * aggregation without keys, take all rows at once.
   */
  def of(
      operatorName: String,
      store: String,
      keySchema: StructType,
      settings: Map[String, String]): StorePartitioning =
    if (operatorName == Limit || keySchema.isEmpty) {
      new StorePartitioning(new StructType, new NoopStatePartitionKeyExtractor(keySchema))
    } else {
      try {
        val extractor = StatePartitionKeyExtractorFactory.create(
          operatorName, keySchema, store, StateStore.DEFAULT_COL_FAMILY_NAME,
          Some(settings.getOrElse(JoinFormat, "2").toInt), None)
        new StorePartitioning(extractor.partitionKeySchema, extractor)
      } catch {
        case NonFatal(e) =>
          throw new CowStateException(
            s"Spark does not tell to which partition a key of the operator $operatorName belongs. " +
              "To get another number of partitions, start the query with a new checkpoint", e)
      }
    }
}
