package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import java.io.{Closeable, IOException}
import java.nio.file.{Files, Paths}

import org.apache.hadoop.conf.Configuration

import org.apache.spark.{SparkContext, TaskContext, TaskKilledException}
import org.apache.spark.shuffle.FetchFailedException
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.StateStoreConf
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateException, StateFileName
}
import org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints.FoldedRow
import org.apache.spark.sql.execution.streaming.state.cowstate.jobs.{
  ArrivedRows, RescaleOrder, RescaledPlace, RescalingTasks, SentRow, SentRows, StoreToRescale
}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.util.SerializableConfiguration

/**
 * Sends the rows of one old partition to the second of two new ones, which writes its file below
 * `root` and reads it back, with a mishap on the way.
 */
final class DealScript(root: String) {
  import ScriptedRows._

  private val shaped = shape(withPrefix = false)
  private val numbers = 0L until 100L
  private val store = StoreToRescale(0, "stateStoreSave", "default", 0, None)
  private val order = RescaleOrder(s"file:$root", "a" * 16, 7, 1, 2, Map.empty, Seq(store))
  private val storeConf = new StateStoreConf(new SQLConf)
  private val place =
    new RescaledPlace(order, store, shaped, 1, storeConf, new Configuration(false))

  /** For each line, a mishap, how many rows the new partition has, or the error. */
  def run(script: String): String = {
    TaskContext.setTaskContext(TaskContext.empty())
    try script.linesIterator.map(dealt).mkString("\n")
    finally TaskContext.unset()
  }

  private def dealt(mishap: String): String =
    try {
      val rows = new ArrivedRows(changed(mishap, sent(mishap)).iterator, shaped, 1)
      val (name, tally) = place.write(rows)
      if (mishap == "damaged file") damage(name)
      place.verify(name, tally)
      s"${tally.rows} rows"
    } catch { case e: CowStateException => e.getMessage.linesIterator.next() }

  /** What becomes of a task whose rows end with a failure: its outcome, or what it throws. */
  def outcomeOf(failure: String): String = {
    val conf =
      SparkContext.getOrCreate().broadcast(new SerializableConfiguration(new Configuration(false)))
    // It is read now, because the context below is of no task that could read it.
    conf.value
    val tasks = new RescalingTasks(order, Seq(shaped), storeConf, conf)
    TaskContext.setTaskContext(TaskContext.empty())
    try
      tasks.written(0, 1, sent("").iterator.take(5) ++ new FailingRows(failure)).error.getOrElse("")
    catch { case e: Exception => s"thrown ${e.getClass.getSimpleName}" }
    finally {
      conf.destroy()
      TaskContext.unset()
    }
  }

  private final class FailingRows(failure: String) extends Iterator[UnsafeRow] {
    override def hasNext: Boolean = true

    override def next(): UnsafeRow = failure match {
      case "lost executor" => throw new FetchFailedException(null, 0, 0L, 0, 0, "it is gone")
      case "killed" => throw new TaskKilledException("another attempt succeeded")
      case _ => throw new IOException("the disk is gone")
    }
  }

  /** The rows of the state for the second partition, and then what was sent. */
  private def sent(mishap: String): Seq[UnsafeRow] = {
    val belongsTo = place.partitionOf(2)
    val targetOf = if (mishap == "wrong partition") (_: UnsafeRow) => 1 else belongsTo
    val sending = new SentRows("old", 0, 2, targetOf, () => new Rows(mishap))
    sending.filter(_._1 == 1).map(_._2.copy()).toSeq
  }

  private final class Rows(mishap: String) extends Iterator[FoldedRow] with Closeable {
    private val left = numbers.iterator

    override def hasNext: Boolean = left.hasNext

    override def next(): FoldedRow = {
      val number = left.next()
      if (mishap == "unreadable" && number == 50) throw new IOException("the disk is gone")
      val row = new FoldedRow(key(number), value(s"2:$number"))
      row.keyHash = row.key.hashCode
      row
    }

    override def close(): Unit = ()
  }

  private def changed(mishap: String, rows: Seq[UnsafeRow]): Seq[UnsafeRow] = mishap match {
    case "lost row" => rows.tail
    case "row comes twice" => rows.head +: rows
    case "another row" => other(rows.head) +: rows.tail
    case "lost end" => rows.init
    case _ => rows
  }

  /** As many bytes, but another value. */
  private def other(row: UnsafeRow): UnsafeRow = {
    val key = new UnsafeRow(shaped.keyFields)
    val bytes = row.getBinary(0)
    key.pointTo(bytes, bytes.length)
    new SentRow().data(key, value("2:1000"), 0).copy()
  }

  private def damage(name: StateFileName): Unit = {
    val file = Paths.get(root, "state", "0", "1", name.toString)
    val bytes = Files.readAllBytes(file)
    bytes(bytes.length / 3) = (bytes(bytes.length / 3) ^ 0xff).toByte
    Files.write(file, bytes): Unit
  }
}
