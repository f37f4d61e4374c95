package org.apache.spark.sql.execution.streaming.state.cowstate.plans

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicBoolean

import org.apache.spark.internal.Logging
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperator
import org.apache.spark.sql.execution.streaming.state.cowstate.CowStateStoreProvider
import org.apache.spark.sql.internal.SQLConf

/**
 * Warns in the driver's log of states that are not cowstate's, although the configuration asks for
 * cowstate, and names the way out. The query goes on.
 */
private[sql] object OperatorsOfSpark extends Logging {
  private val Enabled = "spark.cowstate.enabled"
  private val Fallback = "spark.cowstate.fallback"
  private val Transform = "TransformWithState"
  private val MostRuns = 1000
  private val isTransformTold = new AtomicBoolean
  private val toldRuns = ConcurrentHashMap.newKeySet[String]()

  /**
   * Warn once if the session enables cowstate, but the plan has Spark's own transformWithState: the
   * job never called the function with which PySpark plans cowstate's operator.
   */
  def tellOfTransform(session: SparkSession, plan: LogicalPlan): Unit = {
    def isOn(key: String, value: String) =
      session.conf.getOption(key).exists(_.equalsIgnoreCase(value))
    if (isOn(Enabled, "true") && !isOn(Fallback, "spark") && !isTransformTold.get &&
        plan.exists(_.nodeName.startsWith(Transform)) && !isTransformTold.getAndSet(true)) {
      logWarning(
        s"$Enabled is true, and this job has Spark's own transformWithState: call " +
          "spark_state.enable(spark) before transformWithState, or build the session with " +
          "spark_state.configure. The setting alone changes nothing")
    }
  }

  /** Warn, once for each run of a query, if another provider began the checkpoint. */
  def tellOfProvider(plan: SparkPlan, conf: SQLConf): Unit = {
    val operators = plan.collect { case operator: StatefulOperator => operator }
    val provider = conf.getConf(SQLConf.STATE_STORE_PROVIDER_CLASS)
    for {
      info <- operators.headOption.flatMap(_.stateInfo)
      // Spark allows transformWithState on RocksDB only.
      if !operators.exists(_.nodeName.startsWith(Transform))
      if !CowStateStoreProvider.isNamed(provider) &&
        SparkSession.getDefaultSession.exists(asksForCowState)
      if toldRuns.add(info.queryRunId.toString)
    } {
      if (toldRuns.size > MostRuns) toldRuns.clear()
      val checkpoint = info.checkpointLocation.stripSuffix("/state")
      logWarning(
        s"The state of $checkpoint is on ${provider.split('.').last}, and the session asks for " +
          "cowstate: a checkpoint keeps the provider that began it. To go on with cowstate, stop " +
          s"the query and run: cowstate adopt $checkpoint --apply")
    }
  }

  private def asksForCowState(session: SparkSession): Boolean =
    CowStateStoreProvider.isNamed(session.conf.get(SQLConf.STATE_STORE_PROVIDER_CLASS.key))
}
