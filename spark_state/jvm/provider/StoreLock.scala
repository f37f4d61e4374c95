package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util.concurrent.TimeUnit
import java.util.concurrent.locks.ReentrantLock

/** Lets one task at a time write to a store. The next one waits, and its wait is bounded. */
final class StoreLock(owner: => String, seconds: Long) {
  private val lock = new ReentrantLock
  private val changed = lock.newCondition()
  private var holder: AnyRef = _
  /** The thread that acquired it. A task does that in its own thread. */
  private var thread: Thread = _

  /**
   * Throws CowStateBusyException when the store is still held after the time, and at once if this
   * thread holds it: it would wait for itself.
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

  /** Release it if `task` holds it. */
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
