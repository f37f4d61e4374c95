package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/** A store that can bring what its lookups read into the processor's caches. */
private[cowstate] trait PrefetchingStore {
  def id: StateStoreId

  /**
   * To be called before the keys with these hashes are looked up. It changes nothing. Returns for
   * how many of them it found a record.
   */
  def prefetch(hashes: Array[Int], count: Int): Int
}

/** The stores that tasks of this executor have opened. An operator finds that of the one above it. */
private[cowstate] object StoresOfTask {
  /** A task may read several partitions, one after the other, and finds the store opened last. */
  private final case class Opened(
      taskAttempt: Long, checkpoint: String, operator: Long, store: String)

  private val stores = new ConcurrentHashMap[Opened, PrefetchingStore]

  /** To be called where a store is opened. It is forgotten when the task ends. */
  def opened(store: PrefetchingStore): Unit = Option(TaskContext.get()).foreach { task =>
    val id = store.id
    val key =
      Opened(task.taskAttemptId(), id.checkpointRootLocation, id.operatorId, id.storeName)
    if (stores.put(key, store) == null) {
      task.addTaskCompletionListener[Unit](_ => stores.remove(key))
    }
  }

  /** What the running task has opened for an operator of a query. */
  def of(checkpoint: String, operator: Long): Option[PrefetchingStore] =
    Option(TaskContext.get()).flatMap { task =>
      Option(stores.get(Opened(
            task.taskAttemptId(), checkpoint, operator, StateStoreId.DEFAULT_STORE_NAME)))
    }
}
