package org.apache.spark.sql.execution.streaming.state.cowstate.jobs

import java.util.concurrent.{ConcurrentHashMap, TimeUnit}

import scala.jdk.CollectionConverters._
import scala.reflect.ClassTag

import org.json4s.{DefaultFormats, Formats}
import org.json4s.jackson.Serialization

import org.apache.spark.{SimpleFutureAction, SparkStatusTracker}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{CowStateException, WaysOut}
import org.apache.spark.sql.execution.streaming.state.cowstate.gateway.ObjectStoreException

/** Outcome of a task for a store, or the reason why the task failed. */
private[cowstate] trait StoreOutcome {
  def error: Option[String]
}

/**
 * Running Spark job over the stores of a checkpoint. The tasks of the last stage report outcomes of
 * stores. Earlier stages report nothing.
 *
 * @param total     number of tasks of all stages
 * @param lastTasks number of tasks of the last stage
 * @param results   outcomes of the finished tasks of the last stage, by task number
 */
private[cowstate] final class StoreJob[T <: StoreOutcome] private (
    tracker: SparkStatusTracker,
    val total: Int,
    lastTasks: Int,
    results: ConcurrentHashMap[Int, Seq[T]],
    job: SimpleFutureAction[Unit]) {
  import StoreJob._

  def finished: Int = {
    val before = total - lastTasks
    if (results.isEmpty) math.min(before, stages.map(_.numCompletedTasks()).sum)
    else before + results.size
  }

  def isDone: Boolean = job.isCompleted || failed

  def failed: Boolean = outcomes.exists(_.error.isDefined)

  /**
   * End the running tasks, and wait until no task writes any more. The wait takes at most
   * CancelSeconds.
   */
  def cancel(): Unit = {
    job.cancel()
    val limit = System.nanoTime + TimeUnit.SECONDS.toNanos(CancelSeconds)
    while (activeTasks > 0 && System.nanoTime < limit) Thread.sleep(20)
  }

  private def activeTasks: Int = stages.map(_.numActiveTasks()).sum

  private def stages = {
    val numbers = job.jobIds.flatMap(tracker.getJobInfo).flatMap(_.stageIds())
    numbers.flatMap(tracker.getStageInfo)
  }

  private def outcomes: Seq[T] = results.asScala.toSeq.sortBy(_._1).flatMap(_._2)

  /** Return the outcomes as JSON; call after `isDone`. Throws the failure of the job itself. */
  def result(): String = {
    if (!failed) job.get()
    Serialization.write(outcomes)
  }
}

private[cowstate] object StoreJob {
  private implicit val formats: Formats = DefaultFormats
  private val CancelSeconds = 60L

  /**
   * Begin a job whose last stage has a task for each partition of `rdd`. `total`: number of tasks
   * of all stages.
   */
  def submit[S, T <: StoreOutcome: ClassTag](rdd: RDD[S], total: Int)(
      task: Iterator[S] => Seq[T]): StoreJob[T] = {
    val results = new ConcurrentHashMap[Int, Seq[T]]
    val job = rdd.sparkContext.submitJob(
      rdd, task, rdd.partitions.indices,
      (number: Int, done: Seq[T]) => { results.put(number, done); () }, ())
    new StoreJob(rdd.sparkContext.statusTracker, total, rdd.partitions.length, results, job)
  }

  /** Describe a failure in the directory `url`. Errors of cowstate tell the way out, too. */
  def reasonOf(url: String, e: Throwable): String = {
    val causes = Iterator.iterate(e)(_.getCause).takeWhile(_ != null).toSeq
    val ours = causes.find {
      case _: CowStateException | _: ObjectStoreException => true
      case _ => false
    }
    val reason = ours.map(_.getMessage).getOrElse {
      val innermost = causes.last
      val what = Option(innermost.getMessage).getOrElse(innermost.getClass.getName)
      s"its files cannot be read: $what. Restore them ${WaysOut.RestoreOrRestart}"
    }
    s"$url: $reason"
  }
}

/** Number of rows, and the sum of their hashes. The sum is the same in any order of the rows. */
private[cowstate] final case class StateTally(rows: Long = 0, hash: Long = 0) {
  def plus(key: UnsafeRow, value: UnsafeRow): StateTally = plus(key.hashCode, value)

  def plus(keyHash: Int, value: UnsafeRow): StateTally =
    StateTally(rows + 1,
      hash + StateTally.mixed(keyHash.toLong << 32 | value.hashCode & 0xffffffffL))

  def plus(other: StateTally): StateTally = StateTally(rows + other.rows, hash + other.hash)
}

private object StateTally {
  /**
   * Mix the hashes of a key and its value, so that the sum tells which value belongs to which key.
   * Uses the last step of MurmurHash3 for 64 bits.
   */
  private def mixed(hashes: Long): Long = {
    val first = (hashes ^ hashes >>> 33) * 0xff51afd7ed558ccdL
    val second = (first ^ first >>> 33) * 0xc4ceb9fe1a85ec53L
    second ^ second >>> 33
  }
}
