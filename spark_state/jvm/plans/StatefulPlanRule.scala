package org.apache.spark.sql.execution.streaming.state.cowstate.plans

import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, Literal}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{ColumnarRule, SortExec, SparkPlan}
import org.apache.spark.sql.execution.aggregate.{
  BaseAggregateExec, HashAggregateExec, ObjectHashAggregateExec, SortAggregateExec
}
import org.apache.spark.sql.execution.streaming.operators.stateful.{
  BaseStreamingDeduplicateExec, StatefulOperator, StateStoreRestoreExec, StateStoreSaveExec
}
import org.apache.spark.sql.execution.streaming.operators.stateful.flatmapgroupswithstate.FlatMapGroupsWithStateExecBase
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec
import org.apache.spark.sql.execution.streaming.state.cowstate.CowStateStoreProvider
import org.apache.spark.sql.execution.streaming.state.cowstate.base.CowStateConf
import org.apache.spark.sql.execution.streaming.state.cowstate.provider.JoinStores
import org.apache.spark.sql.internal.SQLConf

/**
 * Rule that changes Spark's plan of a batch with stateful operators. Output rows and state stay the
 * same. Rows of groups reach the store and the sink in the order of the input, not in the order of
 * a hash table. Spark planned an aggregation as
 *
 *     aggregate, final        groups have one row each
 *     StateStoreSave
 *     aggregate, merging      groups have two rows, or one row if the key is new
 *     StateStoreRestore       puts out each row, and before each row the stored row of the same key
 *     aggregate, merging      each key once
 *
 * Restore and save put out the rows of a group next to each other. Save puts out one row of each
 * group, in each output mode. So the upper two aggregates need neither a hash table nor a sort: the
 * rule makes both work as if the input was sorted. Then the store puts a row right after reading
 * the replaced row, while the replaced row is still in the processor's cache.
 *
 * Both aggregates then claim that their rows are sorted. An UnorderedExec above the final aggregate
 * withdraws the claim. StateStoreSave does not hand on the claim of the aggregate below.
 *
 * A StatePrefetchExec goes below each operator that looks up the key of each row, and a
 * StateEvictionExec below each operator that evicts old rows. When an evicting operator asks a
 * store for all rows, to find the old rows, the store answers with the old rows alone. A join gets
 * neither node below. A StateOfJoinExec above the join does the work of both nodes. If the join puts
 * out no old rows, the join's stores remove most old rows by themselves, and the join is shown the
 * rest.
 *
 * Spark applies the rule after planning the batch and checking the operators, before generating
 * code.
 */
private[sql] object StatefulPlanRule extends ColumnarRule {
  override def postColumnarTransitions: Rule[SparkPlan] = Changed

  private object Changed extends Rule[SparkPlan] {
    override def apply(plan: SparkPlan): SparkPlan = SparkInternals.changing(plan) {
      if (plan.exists(_.isInstanceOf[StatefulOperator]) && isWanted(conf)) {
        plan.transformUp {
          case join: StreamingSymmetricHashJoinExec => withState(join)
          // The rule has changed the plan before.
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
    CowStateStoreProvider.isNamed(conf.getConf(SQLConf.STATE_STORE_PROVIDER_CLASS)) &&
      CowStateConf.changesPlans(conf.getAllConfs)

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

  /** Return the operator with nodes below to prefetch and to tell the task of evictions. */
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

  /** Return the key that the operator looks up in its only store for each row, if any. */
  private def keyOf(operator: SparkPlan): Option[Seq[Expression]] = operator match {
    case restore: StateStoreRestoreExec => Some(restore.keyExpressions)
    case distinct: BaseStreamingDeduplicateExec => Some(distinct.keyExpressions)
    case groups: FlatMapGroupsWithStateExecBase => Some(groups.keyExpressions)
    case _ => None
  }

  /**
   * Return the lookups of a join for a row from the input of side `own`. The join looks up the
   * counts of the row's key on both sides. If the other side has the key, the join reads the key's
   * values there, and the first value is prefetched. If the own side does not have the key yet, the
   * join puts the row there as the first value of the key.
   */
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
    // Operators above the store do not see the order in which rows were put.
    case (merge: SortAggregateExec, SortExec(_, false, restore: StateStoreRestoreExec, _))
        if hasEachKeyOnce(restore) && groups(aggregate, restore.keyExpressions) =>
      merge.copy(child = restore)
    // An ObjectHashAggregateExec stays: the operator reads all input before a task opens the next
    // input. A join of a batch with itself needs this order: both inputs write to one store, first
    // all rows of one input, then all rows of the other input.
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
