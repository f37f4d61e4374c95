package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.TaskContext

/** A state file that is being written; it has a name after `commit`. */
final class PendingStateFile(
    create: () => StateFileOutput,
    codec: String,
    header: Seq[(String, String)],
    checksums: RowChecksums) {
  private var output: StateFileOutput = _
  private var ahead = Option.empty[CommitAhead]

  val rows = new StateFileWriter(() => open(), codec, header, checksums)

  private def open() = {
    output = create()
    output.stream
  }

  /** Begin to commit, in another thread, for which `commit` waits. No rows may come any more. */
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
 * A thread that commits a file. It is a new one, and has the context of the task: so it acts for the
 * same user, with the settings of the query.
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

  /** Wait for its end. Throws what it failed with, or that this thread was interrupted. */
  def await(): Unit = {
    join()
    failure.foreach(throw _)
  }

  /** Interrupt it, and wait until it uses the file no more, whatever happens meanwhile. */
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
