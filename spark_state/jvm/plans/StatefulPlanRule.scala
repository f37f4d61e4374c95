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
import org.apache.spark.sql.execution.streaming.state.StateStoreId
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
 * answers with the old ones alone. Where a join puts out nothing of them, its stores remove most of
 * them before they answer, and a RemovedRowsExec above the join lets them count these.
 *
 * Spark asks for this rule when it has planned the batch and checked its operators, before it
 * generates code.
 */
private[sql] object StatefulPlanRule extends ColumnarRule {
  override def postColumnarTransitions: Rule[SparkPlan] = Changed

  private object Changed extends Rule[SparkPlan] {
    override def apply(plan: SparkPlan): SparkPlan =
      if (plan.exists(_.isInstanceOf[StatefulOperator]) && isWanted(conf)) {
        plan.transformUp {
          case operator: StatefulOperator if !isInformed(operator) => informed(operator)
          case aggregate: BaseAggregateExec if aggregate.groupingExpressions.nonEmpty =>
            group(aggregate)
        }
      } else {
        plan
      }
  }

  private def isWanted(conf: SQLConf): Boolean =
    isOurs(conf.getConf(SQLConf.STATE_STORE_PROVIDER_CLASS)) &&
      CowStateConf.changesPlans(conf.getAllConfs)

  private def isOurs(provider: String): Boolean =
    try classOf[CowStateStoreProvider].isAssignableFrom(SparkClassUtils.classForName[Any](provider))
    catch { case NonFatal(_) | _: LinkageError => false } // Spark says later what is wrong with it

  private def isInformed(operator: SparkPlan): Boolean =
    operator.children.exists {
      case _: StatePrefetchExec | _: StateEvictionExec => true
      case _ => false
    }

  /** The operator, with nodes around it that prefetch for it, and let its stores evict. */
  private def informed(operator: StatefulOperator): SparkPlan = {
    lazy val info = operator.getStateInfo
    def prefetching(child: SparkPlan, lookups: Seq[StateLookup]) =
      if (lookups.isEmpty) child
      else StatePrefetchExec(lookups, info.checkpointLocation, info.operatorId, child)
    val evictions = Evictions.of(operator)
    def evicting(child: SparkPlan) =
      if (evictions.isEmpty) child
      else StateEvictionExec(evictions, info.checkpointLocation, info.operatorId, child)
    // The first input of a join is read before the join evicts from either side.
    operator.children.zip(lookupsOf(operator)).map((prefetching _).tupled) match {
      case first +: others =>
        val changed = operator.withNewChildren(evicting(first) +: others)
        if (evictions.exists { case (store, eviction) => eviction.leavesTo(store) }) {
          RemovedRowsExec(info.checkpointLocation, info.operatorId, changed)
        } else {
          changed
        }
      case _ => operator
    }
  }

  /** What the operator looks up for the rows of each input. */
  private def lookupsOf(operator: SparkPlan): Seq[Seq[StateLookup]] = operator match {
    case restore: StateStoreRestoreExec => Seq(inOnlyStore(restore.keyExpressions))
    case distinct: BaseStreamingDeduplicateExec => Seq(inOnlyStore(distinct.keyExpressions))
    case join: StreamingSymmetricHashJoinExec =>
      Seq(
        inJoin(join.leftKeys, JoinStores.Left, JoinStores.Right),
        inJoin(join.rightKeys, JoinStores.Right, JoinStores.Left))
    case _ => operator.children.map(_ => Nil)
  }

  private def inOnlyStore(key: Seq[Expression]): Seq[StateLookup] =
    if (key.isEmpty) Nil else Seq(StateLookup(key, StateStoreId.DEFAULT_STORE_NAME))

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
