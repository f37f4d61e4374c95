package org.apache.spark.sql.execution.streaming.state.cowstate.plans

import java.util.{Collections, UUID, WeakHashMap}
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import com.codahale.metrics.{Gauge, MetricRegistry}

import org.apache.spark.SparkEnv
import org.apache.spark.metrics.source.Source
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.streaming.{
  StateOperatorProgress, StreamingQueryListener, StreamingQueryManager
}
import org.apache.spark.sql.streaming.StreamingQueryListener._

/**
 * Shows the stateful operators of running queries among Spark's own metrics, so that every sink of
 * Spark has their numbers, for example the Prometheus endpoint of Spark's UI, also in a job that
 * has only the jar.
 *
 * An operator is a source of its own, `cowstate.<query>.<place>-<operator>`, where <query> is the
 * name of the query, or its id if there is no name or a query of another session has the name, and
 * <place> is the place of the operator in the progress. The gauges are the numbers of the newest
 * progress, and are there from the first progress to the end of the run.
 */
private[sql] final class StateMetricsSources extends StreamingQueryListener {
  import StateMetricsSources._

  private val sourcesOfRuns = new ConcurrentHashMap[UUID, Map[String, OperatorSource]]

  override def onQueryStarted(event: QueryStartedEvent): Unit = ()

  override def onQueryProgress(event: QueryProgressEvent): Unit = {
    val progress = event.progress
    val query = nameOf(progress.name, progress.id, progress.runId)
    val sources = Option(sourcesOfRuns.get(progress.runId)).getOrElse(Map.empty)
    val newest = progress.stateOperators.zipWithIndex.map { case (operator, number) =>
      val name = s"$query.$number-${operator.operatorName}"
      val numbers = numbersOf(operator)
      sources.get(name).filter(_.numbers.keySet == numbers.keySet) match {
        case Some(source) =>
          source.numbers = numbers
          name -> source
        case None =>
          sources.get(name).foreach(remove)
          name -> add(new OperatorSource(name, numbers))
      }
    }.toMap
    sources.removedAll(newest.keys).values.foreach(remove)
    sourcesOfRuns.put(progress.runId, newest): Unit
  }

  override def onQueryTerminated(event: QueryTerminatedEvent): Unit = {
    runsOfNames.values.removeIf(_ == event.runId)
    Option(sourcesOfRuns.remove(event.runId)).foreach(_.values.foreach(remove))
  }

  private def add(source: OperatorSource): OperatorSource = {
    SparkEnv.get.metricsSystem.registerSource(source)
    source
  }

  /** Remove a source. A query may end together with its application, which then has no metrics. */
  private def remove(source: OperatorSource): Unit =
    Option(SparkEnv.get).foreach(_.metricsSystem.removeSource(source))
}

private[sql] object StateMetricsSources {
  // These metrics are of a partition and store, and other partitions have them in each batch.
  private val OfPartitions = "SnapshotLastUploaded"
  private val followed = Collections.synchronizedSet(
    Collections.newSetFromMap(new WeakHashMap[StreamingQueryManager, java.lang.Boolean]))

  // Names of queries are unique in a session only.
  private val runsOfNames = new ConcurrentHashMap[String, UUID]

  /** Show the operators of the session's queries from now on. Safe to call again. */
  def follow(session: SparkSession): Unit = {
    val queries = session.streams
    if (followed.add(queries)) queries.addListener(new StateMetricsSources)
  }

  /** The name of a query's sources: the name of the query, or its id if the name is taken. */
  private def nameOf(query: String, id: UUID, run: UUID): String = {
    val name = s"cowstate.${Option(query).getOrElse(id.toString)}"
    if (runsOfNames.computeIfAbsent(name, _ => run) == run) name else s"cowstate.$id"
  }

  /** The numbers of an operator, by the names that Spark's progress has. */
  private def numbersOf(operator: StateOperatorProgress): Map[String, Long] = Map(
    "numRowsTotal" -> operator.numRowsTotal,
    "numRowsUpdated" -> operator.numRowsUpdated,
    "numRowsRemoved" -> operator.numRowsRemoved,
    "numRowsDroppedByWatermark" -> operator.numRowsDroppedByWatermark,
    "memoryUsedBytes" -> operator.memoryUsedBytes,
    "allUpdatesTimeMs" -> operator.allUpdatesTimeMs,
    "allRemovalsTimeMs" -> operator.allRemovalsTimeMs,
    "commitTimeMs" -> operator.commitTimeMs,
    "numStateStoreInstances" -> operator.numStateStoreInstances
  ) ++ operator.customMetrics.asScala.collect {
    case (name, value) if !name.startsWith(OfPartitions) => name -> value.longValue
  }

  /** A stateful operator of a query. `numbers`: the numbers of the newest progress. */
  private final class OperatorSource(
      override val sourceName: String, @volatile var numbers: Map[String, Long]) extends Source {
    override val metricRegistry: MetricRegistry = new MetricRegistry

    numbers.keys.foreach { name =>
      val gauge: Gauge[Long] = () => numbers(name)
      metricRegistry.register(name, gauge)
    }
  }
}
