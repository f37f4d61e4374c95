package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.metric.SQLMetric
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

/**
 * The stores that tasks of this executor have opened, and what their operators will evict. Operators
 * that were put below another one use this to find its stores, and its stores to find each other.
 */
private[cowstate] object StoresOfTask {
  /** A task may read several partitions, one after the other, and finds the store opened last. */
  private final case class Opened(
      taskAttempt: Long, checkpoint: String, operator: Long, store: String)

  private val stores = new ConcurrentHashMap[Opened, PrefetchingStore]
  private val evictions = new ConcurrentHashMap[Opened, (StoreEviction, SQLMetric)]

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
  def of(
      checkpoint: String,
      operator: Long,
      store: String = StateStoreId.DEFAULT_STORE_NAME): Option[PrefetchingStore] =
    Option(TaskContext.get()).flatMap { task =>
      Option(stores.get(Opened(task.taskAttemptId(), checkpoint, operator, store)))
    }

  /** What an operator will evict in the running task, by store; and what counts the rows found. */
  def willEvict(
      checkpoint: String,
      operator: Long,
      byStore: Map[String, StoreEviction],
      oldRowCount: SQLMetric): Unit = Option(TaskContext.get()).foreach { task =>
    byStore.foreach { case (store, eviction) =>
      val key = Opened(task.taskAttemptId(), checkpoint, operator, store)
      if (evictions.put(key, (eviction, oldRowCount)) == null) {
        task.addTaskCompletionListener[Unit](_ => evictions.remove(key))
      }
    }
  }

  /** The operator of a store has committed: whoever asks later in the task wants all rows. */
  def hasEvicted(id: StateStoreId): Unit = Option(TaskContext.get()).foreach { task =>
    evictions.remove(
      Opened(task.taskAttemptId(), id.checkpointRootLocation, id.operatorId, id.storeName))
  }

  /** What the operator of a store will evict from it in the running task. */
  def evictionFrom(id: StateStoreId): Option[(StoreEviction, SQLMetric)] =
    Option(TaskContext.get()).flatMap { task =>
      Option(evictions.get(Opened(
            task.taskAttemptId(), id.checkpointRootLocation, id.operatorId, id.storeName)))
    }
}
