package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util.concurrent.atomic.AtomicLong

/**
 * What the state of one store holds in memory, charged to the executor's total. Safe for several
 * threads: a task that was given up may still write while the account is closed.
 *
 * @param limitBytes of the total of all stores of this executor; exceeding it fails the allocation
 * @param owner      whose state it is, for the error
 */
final class MemoryAccount(limitBytes: Long, val owner: String) {
  private var held = 0L
  @volatile private var limited = true
  private var closed = false

  /** Bytes that this account holds. */
  def bytes: Long = synchronized(held)

  /** Charge `bytes`. Throws CowStateMemoryLimitException, and charges nothing, beyond the limit. */
  def acquire(bytes: Long): Unit = synchronized(if (!closed) {
    val total = MemoryAccount.executorTotal.addAndGet(bytes)
    if (limited && total > limitBytes) {
      MemoryAccount.executorTotal.addAndGet(-bytes)
      throw new CowStateMemoryLimitException(owner, held, total, limitBytes)
    }
    held += bytes
  })

  /** Charge `bytes`, whatever the limit is. */
  def grant(bytes: Long): Unit = synchronized(if (!closed) {
    MemoryAccount.executorTotal.addAndGet(bytes)
    held += bytes
  })

  /** Whether so many bytes more are within the limit. */
  def permits(bytes: Long): Boolean = MemoryAccount.executorBytes + bytes <= limitBytes

  /** How many bytes more are within the limit. */
  def permittedBytes: Long = math.max(0, limitBytes - MemoryAccount.executorBytes)

  /** Run `f` with every allocation granted: undoing must not fail. */
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

  /** Give back all that is held. A task that was given up and still writes is not charged. */
  def close(): Unit = synchronized {
    closed = true
    MemoryAccount.executorTotal.addAndGet(-held)
    held = 0
  }
}

object MemoryAccount {
  private val executorTotal = new AtomicLong

  /** Bytes that all accounts of this executor hold. */
  def executorBytes: Long = executorTotal.get
}
