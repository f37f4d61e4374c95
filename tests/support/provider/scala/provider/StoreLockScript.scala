package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import org.apache.spark.sql.execution.streaming.state.cowstate.base.CowStateBusyException
import org.apache.spark.sql.execution.streaming.state.cowstate.provider.StoreLock

/** A store that another thread holds, for so many milliseconds; then this one wants it. */
final class StoreLockScript(seconds: Long) {
  private val lock = new StoreLock("the store", seconds)

  /** How this thread's wait ended. */
  def run(heldMs: Long): String = {
    val other = new Object
    val holder = new Thread(() => lock.acquire(other))
    holder.start()
    holder.join()
    val releaser = new Thread(() => {
      Thread.sleep(heldMs)
      lock.release(other)
    })
    releaser.start()
    try {
      lock.acquire(this)
      "acquired"
    } catch { case e: CowStateBusyException => e.getMessage }
    finally releaser.join()
  }
}
