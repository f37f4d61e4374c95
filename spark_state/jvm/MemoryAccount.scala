package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util.concurrent.atomic.AtomicLong

/**
 * What the state of one store holds in memory, charged to the executor's total.
 *
 * @param limitBytes of the total of all stores of this executor; exceeding it fails the allocation
 * @param owner      whose state it is, for the error
 */
final class MemoryAccount(limitBytes: Long, owner: String) {
  private val held = new AtomicLong
  @volatile private var limited = true
  @volatile private var closed = false

  /** Bytes that this account holds. */
  def bytes: Long = held.get

  /** Charge `bytes`. Throws CowStateMemoryLimitException, and charges nothing, beyond the limit. */
  def acquire(bytes: Long): Unit = if (!closed) {
    val total = MemoryAccount.executorTotal.addAndGet(bytes)
    if (limited && total > limitBytes) {
      MemoryAccount.executorTotal.addAndGet(-bytes)
      throw new CowStateMemoryLimitException(owner, total, limitBytes)
    }
    held.addAndGet(bytes)
  }

  /** Whether so many bytes more are within the limit. */
  def permits(bytes: Long): Boolean = MemoryAccount.executorBytes + bytes <= limitBytes

  /** Run `f` with every allocation granted: undoing must not fail. */
  def withoutLimit(f: => Unit): Unit = {
    val before = limited
    limited = false
    try f finally limited = before
  }

  def release(bytes: Long): Unit = if (!closed) {
    MemoryAccount.executorTotal.addAndGet(-bytes)
    val left = held.addAndGet(-bytes)
    assert(left >= 0, s"$owner released $bytes bytes too many")
  }

  /** Give back all that is held. A task that was given up and still writes is not charged. */
  def close(): Unit = {
    closed = true
    MemoryAccount.executorTotal.addAndGet(-held.getAndSet(0))
  }
}

object MemoryAccount {
  private val executorTotal = new AtomicLong

  /** Bytes that all accounts of this executor hold. */
  def executorBytes: Long = executorTotal.get
}
