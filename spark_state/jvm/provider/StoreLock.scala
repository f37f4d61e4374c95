package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util.concurrent.TimeUnit
import java.util.concurrent.locks.ReentrantLock

/** Lets one task at a time write to a store. The next one waits, and its wait is bounded. */
final class StoreLock(owner: => String, seconds: Long) {
  private val lock = new ReentrantLock
  private val changed = lock.newCondition()
  private var holder: AnyRef = _

  /** Throws CowStateBusyException when the store is still held after the time. */
  def acquire(task: AnyRef): Unit = locked {
    var left = TimeUnit.SECONDS.toNanos(seconds)
    while (holder != null) {
      if (left <= 0) throw new CowStateBusyException(owner, seconds)
      left = changed.awaitNanos(left)
    }
    holder = task
  }

  def tryAcquire(task: AnyRef): Boolean = locked {
    val free = holder == null
    if (free) holder = task
    free
  }

  /** Release it if `task` holds it. */
  def release(task: AnyRef): Unit = locked {
    if (holder eq task) {
      holder = null
      changed.signalAll()
    }
  }

  private def locked[T](f: => T): T = {
    lock.lock()
    try f
    finally lock.unlock()
  }
}
