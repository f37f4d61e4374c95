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
 * Registry of the last provider of each store on this executor, with the run of the query. Spark
 * closes the providers of an ended run only at the second maintenance after the end. Until then,
 * the state of the ended run would stay in memory beside the state of the next run, and count
 * towards the limit.
 *
 * A reader of a state, with format("statestore"), has a provider, too. Spark gives the reader's
 * provider the id of a run that does not exist, and does not list the provider among the loaded
 * providers. Such a provider takes no state from a run, and reads the run's state in memory.
 */
private[cowstate] object StoresOfRuns {
  private final class Holder(val run: String, last: CowStateStoreProvider) {
    private val reference = new WeakReference(last)

    def provider: Option[CowStateStoreProvider] = Option(reference.get)
  }

  private val holders = new ConcurrentHashMap[StateStoreId, Holder]

  /**
   * Register a provider about to load its store. If the provider is of a run, the provider of an
   * earlier run gives up the state, unless a task still writes to the state. The caller must not
   * hold the monitor of a provider.
   */
  def begin(provider: CowStateStoreProvider, conf: Configuration): Unit =
    runOf(provider, conf).foreach { run =>
      val before = holders.put(provider.stateStoreId, new Holder(run, provider))
      if (before != null && before.run != run) before.provider.foreach(_.giveUpIfIdle())
    }

  /** True if Spark has loaded the provider for a run of a query. */
  def isOfRun(provider: CowStateStoreProvider, conf: Configuration): Boolean =
    runOf(provider, conf).isDefined

  private def runOf(provider: CowStateStoreProvider, conf: Configuration): Option[String] =
    Option(conf.get(StreamExecution.RUN_ID_KEY)).filter { run =>
      StateStore.isLoaded(StateStoreProviderId(provider.stateStoreId, UUID.fromString(run)))
    }

  /** Forget a closed provider. */
  def end(provider: CowStateStoreProvider): Unit = holders.computeIfPresent(
    provider.stateStoreId,
    (_, holder) => if (holder.provider.forall(_ eq provider)) null else holder): Unit

  /** Return the provider of a run with the same store, other than `provider`. */
  def otherThan(provider: CowStateStoreProvider): Option[CowStateStoreProvider] =
    Option(holders.get(provider.stateStoreId)).flatMap(_.provider).filter(_ ne provider)
}
