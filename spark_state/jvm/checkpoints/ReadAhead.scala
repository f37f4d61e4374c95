package org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints

import java.io.Closeable
import java.util.concurrent.{Callable, ExecutionException, ExecutorService, Executors}
import java.util.concurrent.ThreadFactory

import scala.collection.mutable
import scala.util.Try

/**
 * Results of tasks, in order. Reader threads run some tasks ahead. A result that no caller takes is
 * closed with `closeResult`.
 */
private[cowstate] final class ReadAhead[T](tasks: Iterator[() => T], closeResult: T => Unit)
  extends Iterator[T] with Closeable {
  import ReadAhead._

  private val ahead = new mutable.Queue[Ahead[T]]

  override def hasNext: Boolean = {
    fill()
    ahead.nonEmpty
  }

  override def next(): T = {
    fill()
    val taken = ahead.head.take()
    ahead.dequeue()
    fill()
    taken
  }

  private def fill(): Unit = while (ahead.size < Width && tasks.hasNext) {
    ahead.enqueue(new Ahead(tasks.next(), closeResult))
  }

  override def close(): Unit = {
    ahead.foreach(_.giveUp())
    ahead.clear()
  }
}

private object ReadAhead {
  private val Width = 4

  private val readers: ExecutorService = Executors.newFixedThreadPool(
    Runtime.getRuntime.availableProcessors,
    new ThreadFactory {
      override def newThread(task: Runnable): Thread = {
        val thread = new Thread(task, "cowstate-restore")
        thread.setDaemon(true)
        thread
      }
    })

  /**
   * A task in a reader thread. The result is either taken or closed, even if the task is given up
   * while running, or if the wait for the result is interrupted.
   */
  private final class Ahead[T](task: () => T, close: T => Unit) {
    private var made = Option.empty[T]
    private var isGivenUp = false
    private val running = readers.submit(new Callable[Unit] {
      override def call(): Unit = run()
    })

    private def run(): Unit = if (!synchronized(isGivenUp)) {
      val result = task()
      synchronized {
        if (isGivenUp) close(result) else made = Some(result)
      }
    }

    def take(): T = {
      try running.get()
      catch { case e: ExecutionException => throw e.getCause }
      synchronized {
        val taken = made.get
        made = None
        taken
      }
    }

    def giveUp(): Unit = synchronized {
      isGivenUp = true
      made.foreach(result => Try(close(result)))
      made = None
    }
  }
}
