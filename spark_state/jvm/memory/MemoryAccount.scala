package org.apache.spark.sql.execution.streaming.state.cowstate.memory

import java.util.concurrent.atomic.AtomicLong

import org.apache.spark.sql.execution.streaming.state.cowstate.base.CowStateMemoryLimitException

/**
 * Memory held by the state of one store, charged to the executor's total. Safe for several threads,
 * because a task that was given up may still write while the account is closed.
 *
 * @param limitBytes limit of the total over all stores of the executor; exceeding the limit fails
 *                   the allocation
 * @param owner      name of the store, for the error
 */
final class MemoryAccount(limitBytes: Long, val owner: String) {
  private var held = 0L
  @volatile private var limited = true
  private var closed = false

  /** Bytes held by the account. */
  def bytes: Long = synchronized(held)

  /** Charge `bytes`. Beyond the limit, throws CowStateMemoryLimitException and charges nothing. */
  def acquire(bytes: Long): Unit = synchronized(if (!closed) {
    val total = MemoryAccount.executorTotal.addAndGet(bytes)
    if (limited && total > limitBytes) {
      MemoryAccount.executorTotal.addAndGet(-bytes)
      throw new CowStateMemoryLimitException(owner, held, total, limitBytes)
    }
    held += bytes
  })

  /** Charge `bytes`, regardless of the limit. */
  def grant(bytes: Long): Unit = synchronized(if (!closed) {
    MemoryAccount.executorTotal.addAndGet(bytes)
    held += bytes
  })

  /** True if `bytes` more are within the limit. */
  def permits(bytes: Long): Boolean = MemoryAccount.executorBytes + bytes <= limitBytes

  /** Number of bytes left within the limit. */
  def permittedBytes: Long = math.max(0, limitBytes - MemoryAccount.executorBytes)

  /** Run `f` and grant each of its allocations, because undoing must not fail. */
  def withoutLimit(f: => Unit): Unit = {
    val before = limited
    limited = false
    try f
    finally limited = before
  }

  def release(bytes: Long): Unit = synchronized(if (!closed) {
    assert(bytes <= held, s"$owner releases $bytes bytes, and holds $held")
    MemoryAccount.executorTotal.addAndGet(-bytes)
    held -= bytes
  })

  /**
   * Give back all held bytes. A task that was given up and still writes is not charged afterwards.
   */
  def close(): Unit = synchronized {
    closed = true
    MemoryAccount.executorTotal.addAndGet(-held)
    held = 0
  }
}

object MemoryAccount {
  private val executorTotal = new AtomicLong

  /** Bytes held by all accounts of the executor. */
  def executorBytes: Long = executorTotal.get
}
