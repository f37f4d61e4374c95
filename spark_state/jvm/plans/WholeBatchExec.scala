package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.TaskContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.SparkPlan

/**
 * Hands on the rows of its child as they are, and reads those that nobody asked for when the task
 * ends.
 *
 * A store commits when its operator has put out all rows. An aggregate with a hash table takes them
 * all before it puts out one. The aggregates that stand in for it do not, and somebody above may
 * take a few rows only, as `show` does.
 */
private[cowstate] case class WholeBatchExec(child: SparkPlan) extends RowsOfChildExec {
  override protected def doExecute(): RDD[InternalRow] =
    child.execute().mapPartitionsInternal(new WholeBatch(_))

  override protected def withNewChildInternal(newChild: SparkPlan): WholeBatchExec =
    copy(child = newChild)
}

/**
 * Some operators feed a process from a thread of their own, which may ask for rows while the task
 * ends, so there is a lock. The task may never hear of an error in such a thread. A row that was
 * lost there must not be committed, so the task fails.
 */
private[cowstate] final class WholeBatch(rows: Iterator[InternalRow])
  extends Iterator[InternalRow] {
  private var hasBegun = false
  private var hasEnded = false
  private var failure: Throwable = _

  override def hasNext: Boolean = synchronized {
    try !hasEnded && rows.hasNext
    catch { case e: Throwable => failed(e) }
    finally if (!hasBegun) begin()
  }

  override def next(): InternalRow = synchronized {
    if (hasBegun && !hasEnded || hasNext) {
      try rows.next()
      catch { case e: Throwable => failed(e) }
    } else {
      Iterator.empty.next()
    }
  }

  private def failed(error: Throwable): Nothing = {
    failure = error
    throw error
  }

  /**
   * The operators below hold memory and files until their own listeners are called, which is after
   * this one: they began before. If a sort below spills after that, because an operator above needs
   * its memory, its file is closed first. Then reading on fails, and so does the task.
   */
  private def begin(): Unit = {
    hasBegun = true
    Option(TaskContext.get()).foreach(_.addTaskCompletionListener[Unit](end))
  }

  private def end(task: TaskContext): Unit = synchronized {
    try if (!task.isFailed() && !task.isInterrupted()) readOn()
    finally hasEnded = true
  }

  private def readOn(): Unit = {
    if (failure != null) {
      throw new CowStateException(
        "a row of the batch could not be read, and the code that reads the rows ignored the error. " +
          "This task committed nothing. Spark tries again", failure)
    }
    while (!hasEnded && rows.hasNext) rows.next()
  }
}
