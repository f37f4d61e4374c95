package org.apache.spark.sql.execution.streaming.state.cowstate

import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, Literal}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{ColumnarRule, SortExec, SparkPlan}
import org.apache.spark.sql.execution.aggregate.{
  BaseAggregateExec, HashAggregateExec, ObjectHashAggregateExec, SortAggregateExec
}
import org.apache.spark.sql.execution.streaming.operators.stateful.{
  BaseStreamingDeduplicateExec, StatefulOperator, StateStoreRestoreExec, StateStoreSaveExec
}
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.util.SparkClassUtils

/**
 * What this provider changes in Spark's plan of a batch. The rows that are put out, and the state,
 * stay the same. The rows of groups reach the store and the sink in the order of input, not in that
 * of a hash table. Spark planned an aggregation as
 *
 *     aggregate, final        groups have one row each
 *     StateStoreSave
 *     aggregate, merging      groups have two rows, or one if the key is new
 *     StateStoreRestore       each row, and before it what the store has for its key
 *     aggregate, merging      each key once
 *
 * Restore and save put out the rows of a group one after the other, and save, in each output mode,
 * one row of each group. So the two aggregates above them need no hash table, nor a sort: they work
 * as if their input was sorted. A row is then put into the store right after the one that it
 * replaces was read, which the processor still has in its cache.
 *
 * The upper one of them says that its rows are sorted, and an UnorderedExec above it says nothing.
 * What the lower one says ends at the store.
 *
 * Below operators that look up the key of each row comes a StatePrefetchExec, and below those that
 * evict old rows a StateEvictionExec. When these ask a store for all rows, to find the old ones, it
 * answers with the old ones alone. A join has a StateOfJoinExec above it, which does both. Where a
 * join puts out nothing of old rows, its stores remove most of them before they answer.
 *
 * Spark asks for this rule when it has planned the batch and checked its operators, before it
 * generates code.
 */
private[sql] object StatefulPlanRule extends ColumnarRule {
  override def postColumnarTransitions: Rule[SparkPlan] = Changed

  private object Changed extends Rule[SparkPlan] {
    override def apply(plan: SparkPlan): SparkPlan = SparkInternals.changing(plan) {
      if (plan.exists(_.isInstanceOf[StatefulOperator]) && isWanted(conf)) {
        plan.transformUp {
          case join: StreamingSymmetricHashJoinExec => withState(join)
          // The plan was changed before.
          case StateOfJoinExec(_, _, _, changed: StateOfJoinExec) => changed
          case operator: StatefulOperator if !isInformed(operator) => informed(operator)
          case aggregate: BaseAggregateExec if aggregate.groupingExpressions.nonEmpty =>
            group(aggregate)
        }
      } else {
        OperatorsOfSpark.tellOfProvider(plan, conf)
        plan
      }
    }
  }

  private def isWanted(conf: SQLConf): Boolean =
    isOurs(conf.getConf(SQLConf.STATE_STORE_PROVIDER_CLASS)) &&
      CowStateConf.changesPlans(conf.getAllConfs)

  /** Whether a class of providers is this jar's. */
  def isOurs(provider: String): Boolean =
    try classOf[CowStateStoreProvider].isAssignableFrom(SparkClassUtils.classForName[Any](provider))
    catch { case NonFatal(_) | _: LinkageError => false } // Spark says later what is wrong with it

  private def isInformed(operator: SparkPlan): Boolean =
    operator.children.exists {
      case _: StatePrefetchExec | _: StateEvictionExec => true
      case _ => false
    }

  private def withState(join: StreamingSymmetricHashJoinExec): SparkPlan =
    StateOfJoinExec(
      inJoin(join.leftKeys, JoinStores.Left, JoinStores.Right),
      inJoin(join.rightKeys, JoinStores.Right, JoinStores.Left),
      Evictions.of(join),
      join)

  /** The operator, with nodes below it that prefetch for it, and let its store evict. */
  private def informed(operator: StatefulOperator): SparkPlan = {
    lazy val info = operator.getStateInfo
    def prefetching(child: SparkPlan) = keyOf(operator).filter(_.nonEmpty).fold(child) { key =>
      StatePrefetchExec(key, info.checkpointLocation, info.operatorId, child)
    }
    val evictions = Evictions.of(operator)
    def evicting(child: SparkPlan) =
      if (evictions.isEmpty) child
      else StateEvictionExec(evictions, info.checkpointLocation, info.operatorId, child)
    operator.children match {
      case first +: others =>
        operator.withNewChildren(evicting(prefetching(first)) +: others)
      case _ => operator
    }
  }

  /** What the operator looks up in its only store for each row, if anything. */
  private def keyOf(operator: SparkPlan): Option[Seq[Expression]] = operator match {
    case restore: StateStoreRestoreExec => Some(restore.keyExpressions)
    case distinct: BaseStreamingDeduplicateExec => Some(distinct.keyExpressions)
    case _ => None
  }

  /** A row meets the values of the other side, and is put where its own side has no value yet. */
  private def inJoin(key: Seq[Expression], own: JoinStores, other: JoinStores) = {
    val keyOfFirst = key :+ Literal(0L)
    Seq(
      StateLookup(key, other.counts),
      StateLookup(key, own.counts),
      StateLookup(keyOfFirst, other.values, Some(LookupResult(other.counts, isThere = true))),
      StateLookup(keyOfFirst, own.values, Some(LookupResult(own.counts, isThere = false))))
  }

  private def group(aggregate: BaseAggregateExec): SparkPlan = (aggregate, aggregate.child) match {
    case (_: HashAggregateExec | _: ObjectHashAggregateExec, restore: StateStoreRestoreExec)
        if hasEachKeyOnce(restore) && groups(aggregate, restore.keyExpressions) =>
      aggregate.toSortAggregate
    // What is above the store does not see in which order rows were put.
    case (merge: SortAggregateExec, SortExec(_, false, restore: StateStoreRestoreExec, _))
        if hasEachKeyOnce(restore) && groups(aggregate, restore.keyExpressions) =>
      merge.copy(child = restore)
    // An aggregate of objects reads all its input before a task opens its next input. A join of a
    // batch with itself needs that: both inputs write to one store, one after the other.
    case (_: HashAggregateExec, save: StateStoreSaveExec)
        if groups(aggregate, save.keyExpressions) =>
      UnorderedExec(aggregate.toSortAggregate.copy(child = WholeBatchExec(save)))
    case _ => aggregate
  }

  private def groups(aggregate: BaseAggregateExec, keys: Seq[Attribute]): Boolean =
    aggregate.groupingExpressions.map(_.toAttribute.exprId) == keys.map(_.exprId)

  private def hasEachKeyOnce(restore: StateStoreRestoreExec): Boolean = restore.child match {
    case StatePrefetchExec(_, _, _, below: BaseAggregateExec) =>
      groups(below, restore.keyExpressions)
    case _ => false
  }
}
