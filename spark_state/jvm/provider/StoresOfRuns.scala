package org.apache.spark.sql.execution.streaming.state.cowstate

import java.lang.ref.WeakReference
import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.{
  StateStore, StateStoreId, StateStoreProviderId
}

/**
 * Which provider of this executor had each store last, and in which run of the query. Spark closes
 * the providers of a run that has ended with its next but one maintenance. Until then their state
 * would be in memory beside that of the next run, and count towards the limit.
 *
 * Whoever reads a state with format("statestore") has a provider, too. Spark gives it the id of a run
 * that does not exist, and does not list it among the loaded ones. It takes nothing from a run, and
 * reads what the run has in memory.
 */
private[cowstate] object StoresOfRuns {
  private final class Holder(val run: String, last: CowStateStoreProvider) {
    private val reference = new WeakReference(last)

    def provider: Option[CowStateStoreProvider] = Option(reference.get)
  }

  private val holders = new ConcurrentHashMap[StateStoreId, Holder]

  /**
   * A provider is going to load its store. If it is of a run, that of an earlier run gives its state
   * up, unless a task still writes to it. Nobody may hold the monitor of a provider here.
   */
  def begin(provider: CowStateStoreProvider, conf: Configuration): Unit =
    runOf(provider, conf).foreach { run =>
      val before = holders.put(provider.stateStoreId, new Holder(run, provider))
      if (before != null && before.run != run) before.provider.foreach(_.giveUpIfIdle())
    }

  /** Whether Spark has loaded a provider for a run of a query. */
  def isOfRun(provider: CowStateStoreProvider, conf: Configuration): Boolean =
    runOf(provider, conf).isDefined

  private def runOf(provider: CowStateStoreProvider, conf: Configuration): Option[String] =
    Option(conf.get(StreamExecution.RUN_ID_KEY)).filter { run =>
      StateStore.isLoaded(StateStoreProviderId(provider.stateStoreId, UUID.fromString(run)))
    }

  /** A provider is closed. */
  def end(provider: CowStateStoreProvider): Unit = holders.computeIfPresent(
    provider.stateStoreId,
    (_, holder) => if (holder.provider.forall(_ eq provider)) null else holder): Unit

  /** The provider of a run that has a store, if it is not the one that asks. */
  def otherThan(provider: CowStateStoreProvider): Option[CowStateStoreProvider] =
    Option(holders.get(provider.stateStoreId)).flatMap(_.provider).filter(_ ne provider)
}
