package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import java.lang.ref.WeakReference
import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.{
  StateStore, StateStoreId, StateStoreProviderId
}

/**
 * For each store on this executor: the provider that last loaded the store, and the provider's run
 * of the query. When another run loads the store, the provider of the earlier run gives up its
 * state. Spark itself closes the providers of an ended run only at the second maintenance after the
 * end. Until then two states would be in memory, and both would count towards the limit.
 *
 * A reader of a state, with format("statestore"), has a provider, too. Spark gives the reader's
 * provider the id of a run that does not exist, and does not list the provider among the loaded
 * providers. Such a provider is not registered: no state is given up because of a reader. The
 * reader reads the state of the registered provider in memory.
 */
private[cowstate] object StoresOfRuns {
  private final class Holder(val run: String, last: HeldState) {
    private val reference = new WeakReference(last)

    def held: Option[HeldState] = Option(reference.get)
  }

  private val holders = new ConcurrentHashMap[StateStoreId, Holder]

  /**
   * Register a provider about to load its store. If the provider belongs to a run, the provider of
   * an earlier run gives up its state, unless a task still writes to the state. The caller must not
   * hold the monitor of a held state.
   */
  def begin(held: HeldState, conf: Configuration): Unit = runOf(held.id, conf).foreach { run =>
    val before = holders.put(held.id, new Holder(run, held))
    if (before != null && before.run != run) before.held.foreach(_.giveUpIfIdle())
  }

  /** True if Spark has loaded the provider of a store for a run of a query. */
  def isOfRun(id: StateStoreId, conf: Configuration): Boolean = runOf(id, conf).isDefined

  private def runOf(id: StateStoreId, conf: Configuration): Option[String] =
    Option(conf.get(StreamExecution.RUN_ID_KEY)).filter { run =>
      StateStore.isLoaded(StateStoreProviderId(id, UUID.fromString(run)))
    }

  /** Forget the state of a closed provider. */
  def end(held: HeldState): Unit = holders.computeIfPresent(
    held.id, (_, holder) => if (holder.held.forall(_ eq held)) null else holder): Unit

  /** Return the HeldState of a run's provider for the same store, unless it is `held`. */
  def otherThan(held: HeldState): Option[HeldState] =
    Option(holders.get(held.id)).flatMap(_.held).filter(_ ne held)
}
