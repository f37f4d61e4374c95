package org.apache.spark.sql.execution.streaming.state.cowstate.plans

import org.apache.spark.TaskContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.state.cowstate.base.CowStateException

/**
 * Hands on the rows of its child unchanged. When the task ends, reads the remaining rows.
 *
 * A store commits when its operator has put out all rows. An aggregate with a hash table takes all
 * rows before putting out the first row. The aggregates of StatefulPlanRule put out rows earlier,
 * and an operator above may take a few rows only, for example in `show`.
 */
private[cowstate] case class WholeBatchExec(child: SparkPlan) extends RowsOfChildExec {
  override protected def doExecute(): RDD[InternalRow] =
    child.execute().mapPartitionsInternal(new WholeBatch(_))

  override protected def withNewChildInternal(newChild: SparkPlan): WholeBatchExec =
    copy(child = newChild)
}

/**
 * Iterator over the rows of a partition. When the task ends, the iterator reads the remaining rows.
 *
 * Some operators feed a process from a thread of their own, and the thread may ask for rows while
 * the task ends: hence the lock. If reading a row fails, such a thread may ignore the error. So the
 * iterator notes the error, and fails the task when the task ends: the store must not commit a
 * batch with a lost row.
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
   * Register `end` as a listener of the task's completion. Spark calls the last registered listener
   * first. The operators below have registered their listeners already, so they still hold their
   * memory and files when `end` reads the remaining rows.
   *
   * Exception: if a sort below spills after this call, the spill file is closed before `end`. Then
   * the remaining rows cannot be read, and the task fails.
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
