package org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints

import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.RowChecksums
import org.apache.spark.sql.execution.streaming.state.cowstate.files.{
  ArrowRowsWriter, StateFileOutput
}

/** A state file that is being written. The file gets its name at `commit`. */
final class PendingStateFile(
    create: () => StateFileOutput,
    header: Seq[(String, String)],
    checksums: RowChecksums) {
  private var output: StateFileOutput = _
  private var ahead = Option.empty[CommitAhead]

  val rows = new ArrowRowsWriter(() => open(), header, checksums)

  private def open() = {
    output = create()
    output.stream
  }

  /**
   * Begin to commit in another thread; `commit` waits for the thread. No row may be added
   * afterwards.
   */
  def commitAhead(): Unit = {
    val committing = new CommitAhead(() => commitNow())
    committing.start()
    ahead = Some(committing)
  }

  def commit(): Unit = ahead.fold(commitNow())(_.await())

  private def commitNow(): Unit = {
    rows.finish()
    output.commit()
  }

  def cancel(): Unit = {
    ahead.foreach(_.end())
    if (output != null) output.cancel()
  }
}

/**
 * Thread that commits a file. The thread is new and has the context of the task, so the commit runs
 * as the same user, with the settings of the query.
 */
private final class CommitAhead(commit: () => Unit) extends Thread("cowstate-commit") {
  setDaemon(true)
  private val task = TaskContext.get()
  private var failure = Option.empty[Throwable]

  override def run(): Unit =
    try {
      if (task != null) TaskContext.setTaskContext(task)
      commit()
    } catch { case e: Throwable => failure = Some(e) }
    finally TaskContext.unset()

  /**
   * Wait for the end of the thread. Throws the thread's failure, or InterruptedException if the
   * caller was interrupted.
   */
  def await(): Unit = {
    join()
    failure.foreach(throw _)
  }

  /**
   * Interrupt the thread, and wait until the thread uses the file no more, even if the caller is
   * interrupted.
   */
  def end(): Unit = {
    interrupt()
    var wasInterrupted = false
    while (isAlive) {
      try join()
      catch { case _: InterruptedException => wasInterrupted = true }
    }
    if (wasInterrupted) Thread.currentThread.interrupt()
  }
}
