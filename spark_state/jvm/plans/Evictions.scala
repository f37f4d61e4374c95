package org.apache.spark.sql.execution.streaming.state.cowstate.plans

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.{Inner, JoinType, LeftOuter, LeftSemi, RightOuter}
import org.apache.spark.sql.catalyst.plans.logical.{
  EventTimeTimeout, EventTimeWatermark, ProcessingTimeTimeout
}
import org.apache.spark.sql.catalyst.streaming.InternalOutputModes.{Append, Update}
import org.apache.spark.sql.catalyst.util.DateTimeUtils
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.streaming.FlatMapGroupsInPandasWithStateExec
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.operators.stateful.flatmapgroupswithstate.{
  FlatMapGroupsWithStateExec, FlatMapGroupsWithStateExecBase
}
import org.apache.spark.sql.execution.streaming.operators.stateful.flatmapgroupswithstate.GroupStateImpl.NO_TIMESTAMP
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper._
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.cowstate.map.RowTime
import org.apache.spark.sql.execution.streaming.state.cowstate.provider.{JoinStores, StoreEviction}
import org.apache.spark.sql.streaming.GroupStateTimeout
import org.apache.spark.sql.types.{LongType, TimestampNTZType, TimestampType}

/** Finds in the plan of an operator of Spark which rows the operator evicts from its stores. */
private[cowstate] object Evictions {

  /** Return the evictions of an operator, by the name of the store. */
  def of(operator: SparkPlan): Map[String, StoreEviction] = operator match {
    case join: StreamingSymmetricHashJoinExec =>
      val old = join.stateWatermarkPredicates
      ofSide(LeftSide, join.left, old.left, isSilent(join.joinType, LeftSide)) ++
        ofSide(RightSide, join.right, old.right, isSilent(join.joinType, RightSide))
    case save: StateStoreSaveExec
        if save.outputMode.exists(mode => mode == Append || mode == Update) =>
      ofDefault(byKey(save))
    case sessions: SessionWindowStateStoreSaveExec if sessions.outputMode.contains(Append) =>
      ofDefault(sessions.watermarkExpressionForEviction.flatMap(
          timeAndEnd(_, sessions.child.output, isOfKey = false)))
    case distinct: StreamingDeduplicateExec => ofDefault(byKey(distinct))
    case distinct: StreamingDeduplicateWithinWatermarkExec =>
      val expiry = RowTime(BoundReference(0, LongType, nullable = false), isOfKey = false)
      ofDefault(distinct.eventTimeWatermarkForEviction.map(watermark =>
          expiry -> DateTimeUtils.millisToMicros(watermark)))
    case groups: FlatMapGroupsWithStateExec =>
      ofDefault(byTimeout(groups, groups.timeoutConf, groups.batchTimestampMs))
    case groups: FlatMapGroupsInPandasWithStateExec =>
      ofDefault(byTimeout(groups, groups.timeoutConf, groups.batchTimestampMs))
    case _ => Map.empty
  }

  private def ofDefault(timeAndEnd: Option[(RowTime, Long)]): Map[String, StoreEviction] = {
    val store = StateStoreId.DEFAULT_STORE_NAME
    timeAndEnd.map { case (time, upTo) => store -> StoreEviction(time, upTo, store) }.toMap
  }

  private def byKey(operator: WatermarkSupport): Option[(RowTime, Long)] = {
    val keys = operator.keyExpressions
    val eventTimes = keys.filter(_.metadata.contains(EventTimeWatermark.delayKey))
    // With several event-time columns, the choice depends on the operator and the version of Spark:
    // plan no eviction.
    if (eventTimes.map(_.exprId).distinct.size != 1) None
    else {
      operator.watermarkExpressionForEviction
        .filter(_.references.subsetOf(AttributeSet(eventTimes)))
        .flatMap(timeAndEnd(_, keys, isOfKey = true))
    }
  }

  /**
   * Return the time of a group's timeout, and the last time at which groups time out in this batch.
   * The last field of a value has the time, in ms.
   */
  private def byTimeout(
      groups: FlatMapGroupsWithStateExecBase,
      timeout: GroupStateTimeout,
      batchTimeMs: Option[Long]): Option[(RowTime, Long)] = {
    val endMs = timeout match {
      case ProcessingTimeTimeout => batchTimeMs
      case EventTimeTimeout => groups.eventTimeWatermarkForEviction
      case _ => None
    }
    endMs.map { end =>
      val timeMs =
        BoundReference(groups.stateManager.stateSchema.length - 1, LongType, nullable = false)
      val hasNone = EqualTo(timeMs, Literal(NO_TIMESTAMP))
      RowTime(If(hasNone, Literal(RowTime.Never), timeMs), isOfKey = false) -> (end - 1)
    }
  }

  /**
   * Return the eviction of one side of a join, under the name of the store of counts. To find the
   * old rows, the join iterates over this store, whether the join evicts by key or by value.
   */
  private def ofSide(
      side: JoinSide,
      input: SparkPlan,
      old: Option[JoinStateWatermarkPredicate],
      isSilent: Boolean): Map[String, StoreEviction] = {
    val stores = JoinStores.of(side)
    val eviction = old.flatMap {
      case byKey: JoinStateKeyWatermarkPredicate =>
        timeAndEnd(byKey.expr, Nil, isOfKey = true).map(_ -> stores.counts)
      case byValue: JoinStateValueWatermarkPredicate =>
        timeAndEnd(byValue.expr, input.output, isOfKey = false).map(_ -> stores.values)
    }
    eviction.map { case ((time, upTo), timesIn) =>
      stores.counts -> StoreEviction(time, upTo, timesIn, isSilent)
    }.toMap
  }

  /**
   * True if the join puts out no evicted rows of a side. An outer join puts out old rows without a
   * match.
   */
  private def isSilent(joinType: JoinType, side: JoinSide): Boolean = joinType match {
    case Inner | LeftSemi => true
    case LeftOuter => side == RightSide
    case RightOuter => side == LeftSide
    case _ => false
  }

  /**
   * Split a predicate `time <= upTo` into `time` and `upTo`. All predicates of Spark have this
   * form. Returns None for any other form.
   */
  private def timeAndEnd(
      predicate: Expression, row: Seq[Attribute], isOfKey: Boolean): Option[(RowTime, Long)] =
    predicate match {
      case LessThanOrEqual(time, Literal(upTo: Long, _)) if isLong(time) =>
        val bound = BindReferences.bindReference(time, AttributeSeq(row), allowFailures = true)
        Option.when(bound.references.isEmpty && bound.deterministic)(RowTime(bound, isOfKey) ->
          upTo)
      case _ => None
    }

  private def isLong(time: Expression): Boolean = time.dataType match {
    case LongType | TimestampType | TimestampNTZType => true
    case _ => false
  }
}
