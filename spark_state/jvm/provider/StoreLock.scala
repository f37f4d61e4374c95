package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import java.util.concurrent.TimeUnit
import java.util.concurrent.locks.ReentrantLock

import org.apache.spark.sql.execution.streaming.state.cowstate.base.CowStateBusyException

/** Lock that lets one task at a time write to a store. The next task waits for a bounded time. */
final class StoreLock(owner: => String, seconds: Long) {
  private val lock = new ReentrantLock
  private val changed = lock.newCondition()
  private var holder: AnyRef = _
  /** Thread that acquired the lock. A task acquires the lock in its own thread. */
  private var thread: Thread = _

  /**
   * Acquire the lock. Throws CowStateBusyException if the store is still held after `seconds`, and
   * at once if this thread holds the store: the thread would wait for itself.
   */
  def acquire(task: AnyRef): Unit = locked {
    var left = TimeUnit.SECONDS.toNanos(seconds)
    while (holder != null) {
      if (thread eq Thread.currentThread) throw CowStateBusyException.ofOneTask(owner)
      if (left <= 0) throw CowStateBusyException.afterWaiting(owner, seconds)
      left = changed.awaitNanos(left)
    }
    hold(task)
  }

  def tryAcquire(task: AnyRef): Boolean = locked {
    val free = holder == null
    if (free) hold(task)
    free
  }

  private def hold(task: AnyRef): Unit = {
    holder = task
    thread = Thread.currentThread
  }

  /** Release the lock if `task` holds it. */
  def release(task: AnyRef): Unit = locked {
    if (holder eq task) {
      holder = null
      thread = null
      changed.signalAll()
    }
  }

  private def locked[T](f: => T): T = {
    lock.lock()
    try f
    finally lock.unlock()
  }
}
