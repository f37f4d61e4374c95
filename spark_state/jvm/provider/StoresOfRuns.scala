package org.apache.spark.sql.execution.streaming.state.cowstate

import java.lang.ref.WeakReference
import java.util.concurrent.ConcurrentHashMap

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * Which provider of this executor had each store last, and in which run of the query. Spark closes
 * the providers of a run that has ended with its next but one maintenance. Until then their state
 * would be in memory beside that of the next run, and count towards the limit.
 */
private[cowstate] object StoresOfRuns {
  private final class Holder(val run: String, last: CowStateStoreProvider) {
    private val provider = new WeakReference(last)

    def giveUpIfIdle(): Unit = Option(provider.get).foreach(_.giveUpIfIdle())
  }

  private val holders = new ConcurrentHashMap[StateStoreId, Holder]

  /**
   * A provider is going to load its store. That of an earlier run gives its state up, unless a task
   * still writes to it. What is read outside of a query has no run, and changes nothing. Nobody may
   * hold the monitor of a provider here.
   */
  def begin(provider: CowStateStoreProvider, conf: Configuration): Unit =
    Option(conf.get(StreamExecution.RUN_ID_KEY)).foreach { run =>
      val before = holders.put(provider.stateStoreId, new Holder(run, provider))
      if (before != null && before.run != run) before.giveUpIfIdle()
    }
}
