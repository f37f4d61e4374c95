package org.apache.spark.sql.execution.streaming.state.cowstate.suites

import java.io.{PrintStream, PrintWriter, StringWriter}

import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, render}
import org.scalatest.Reporter
import org.scalatest.events._

/**
 * Writes a line of JSON for each test that ended, with the number of stores that the test opened.
 */
final class Outcomes(out: PrintStream) extends Reporter {
  private var openedBefore = OpenedStores.count

  override def apply(event: Event): Unit = synchronized(event match {
    case _: TestStarting => openedBefore = OpenedStores.count
    case e: TestSucceeded => write(e.testName, "passed", e.duration)
    case e: TestFailed => write(e.testName, "failed", e.duration, e.throwable)
    case e: TestCanceled => write(e.testName, "canceled", e.duration, e.throwable)
    case e: TestIgnored => write(e.testName, "ignored", None)
    case e: TestPending => write(e.testName, "ignored", None)
    case e: SuiteAborted => write("", "aborted", e.duration, e.throwable)
    case _ =>
  })

  /** Write that the suite ended before its tests. */
  def aborted(error: Throwable): Unit = synchronized(write("", "aborted", None, Some(error)))

  def close(): Unit = out.close()

  private def write(
      test: String, outcome: String, ms: Option[Long], error: Option[Throwable] = None): Unit = {
    val opened = OpenedStores.count
    val line = ("test" -> test) ~ ("outcome" -> outcome) ~ ("ms" -> ms.getOrElse(0L)) ~
      ("stores" -> (opened - openedBefore)) ~ ("error" -> error.map(textOf).getOrElse(""))
    openedBefore = opened
    out.println(compact(render(line)))
    out.flush()
  }

  private def textOf(error: Throwable): String = {
    val text = new StringWriter
    error.printStackTrace(new PrintWriter(text))
    text.toString
  }
}
