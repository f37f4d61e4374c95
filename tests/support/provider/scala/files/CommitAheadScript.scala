package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import java.io.{ByteArrayOutputStream, IOException, OutputStream}
import java.util.concurrent.{CountDownLatch, TimeUnit}

import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.RowChecksums
import org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints.PendingStateFile
import org.apache.spark.sql.execution.streaming.state.cowstate.files.StateFileOutput

/** A state file whose commit waits until it is told to go on, or is interrupted. */
final class CommitAheadScript {
  private val began = new CountDownLatch(1)
  private val goesOn = new CountDownLatch(1)
  @volatile private var failure = Option.empty[IOException]
  @volatile private var events = List.empty[String]

  private def note(event: String): Unit = synchronized { events = event :: events }

  private val output = new StateFileOutput {
    override val stream: OutputStream = new ByteArrayOutputStream
    override def commit(): Unit = {
      began.countDown()
      try goesOn.await()
      catch {
        case e: InterruptedException =>
          note("interrupted")
          // Whoever cancels has to wait for what comes after the interrupt, too.
          TimeUnit.MILLISECONDS.sleep(200)
          note("ended")
          throw e
      }
      failure.foreach(throw _)
      note("committed")
    }
    override def cancel(): Unit = note("cancelled")
  }
  private val file = new PendingStateFile(() => output, Nil, RowChecksums.Off)

  private def result(): String = events.reverse.mkString(" ")

  private def begin(): Unit = {
    file.commitAhead()
    began.await()
  }

  /** Commit ahead, and then commit. */
  def commit(fails: Boolean): String = {
    begin()
    if (fails) failure = Some(new IOException("no room"))
    goesOn.countDown()
    try file.commit()
    catch { case e: IOException => note(s"failed: ${e.getMessage}") }
    result()
  }

  /** Commit ahead, and cancel meanwhile; `isInterrupted`: in a thread that is interrupted. */
  def cancel(isInterrupted: Boolean): String = {
    begin()
    if (isInterrupted) Thread.currentThread.interrupt()
    file.cancel()
    if (Thread.interrupted()) note("still interrupted")
    result()
  }

  /** Commit ahead, and interrupt whoever waits for it. */
  def interrupt(): String = {
    begin()
    Thread.currentThread.interrupt()
    try file.commit()
    catch { case _: InterruptedException => note("waited no longer") }
    file.cancel()
    result()
  }
}
