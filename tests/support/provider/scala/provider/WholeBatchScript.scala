package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.spark.{TaskContext, TaskContextImpl}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.streaming.state.cowstate.plans.WholeBatch

/** A task that reads a batch of numbers. At `x` the batch has an error, once. */
final class WholeBatchScript(batch: String) {
  private val read = mutable.ArrayBuffer.empty[String]
  private val words = batch.split(' ').iterator

  private val rows = new Iterator[InternalRow] {
    override def hasNext: Boolean = words.hasNext
    override def next(): InternalRow = {
      val word = words.next()
      if (word == "x") throw new IllegalStateException("a row is lost")
      read += word
      InternalRow(word.toInt)
    }
  }

  /**
   * Ask for some rows and end the task: `next` alone, or after `hasNext`. Returns what was read below,
   * and how the task ended. Errors of rows are caught; `fails`: the task fails afterwards.
   */
  def run(asked: Int, asksFirst: Boolean, fails: Boolean): String = {
    val task = TaskContext.empty().asInstanceOf[TaskContextImpl]
    TaskContext.setTaskContext(task)
    try {
      val whole = new WholeBatch(rows)
      for (_ <- 1 to asked) {
        try if (!asksFirst || whole.hasNext) whole.next()
        catch { case NonFatal(_) => }
      }
      if (fails) task.markTaskFailed(new IllegalStateException("the task failed"))
      val end =
        try {
          task.markTaskCompleted(None)
          "ended"
        } catch { case NonFatal(e) => e.getMessage.linesIterator.next() }
      val after = if (asked > 0 && whole.hasNext) "; there is more" else ""
      s"${read.mkString(" ")}; $end$after"
    } finally TaskContext.unset()
  }
}
