package org.apache.spark.sql.execution.streaming.state.cowstate.gateway

import java.io.InterruptedIOException
import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicBoolean
import java.util.concurrent.locks.ReentrantLock

import scala.concurrent.{ExecutionContext, Future}
import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.json4s.{JInt, JString}

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateException, CowStateFencedException, CowStatePlaceException
}

/** Name of a claim: `runs/<number>-<run>.json`, where the number has 19 digits. */
private[cowstate] final case class RunClaimName(number: Long, run: String) {
  override def toString: String = f"$number%019d-$run.json"
}

private[cowstate] object RunClaimName {
  private val Name = raw"(\d{19})-(.+)\.json".r

  def parse(name: String): Option[RunClaimName] = name match {
    case Name(number, run) => Some(RunClaimName(number.toLong, run))
    case _ => None
  }
}

/**
 * Claims of a directory. Answers the questions of a run that wants to write to the directory. Pure.
 */
private[cowstate] final class RunClaims(names: Iterable[RunClaimName]) {
  /** Claims with the highest number; several if runs claimed the directory at the same time. */
  val newest: Seq[RunClaimName] = {
    val number = names.map(_.number).maxOption
    names.filter(name => number.contains(name.number)).toSeq.sortBy(_.run)
  }

  def nextNumber: Long = newest.headOption.map(_.number).getOrElse(0L) + 1

  def isOf(run: String): Boolean = newest.map(_.run) == Seq(run)

  /** True if this run has a claim, and another run claimed later or at the same time. */
  def isLost(run: String): Boolean = names.exists(_.run == run) && !isOf(run)

  /**
   * Return one of the newest claims whose run is not in `runs`, the runs noted in this checkpoint.
   */
  def strange(runs: Set[String]): Option[RunClaimName] = newest.find(name => !runs(name.run))

  /**
   * Claims older than the last 100 numbers. These claims may be deleted. If a run is still alive
   * after the deletion of its claim, the run is refused all the same, see RunClaim.
   */
  def outdated: Seq[RunClaimName] = {
    val kept = names.map(_.number).toSeq.distinct.sortBy(-_).take(RunClaims.Kept).toSet
    names.filterNot(name => kept(name.number)).toSeq
  }
}

private[cowstate] object RunClaims {
  val Kept = 100
}

/**
 * The claim of a run of a query to write into a directory of the store. Two queries would take each
 * other's files for their own, so only one run may write to a directory at a time. Each run writes
 * two files:
 *
 *   <store>/<directory>/runs/<number>-<run>.json    a run began to write; names its checkpoint
 *   <checkpoint>/state/cowstate-runs/<run>          a run of this copy of the checkpoint
 *
 * A run first writes a note into the checkpoint, and then claims the directory with the next
 * number. The claim is allowed if the newest claim is from a run noted in the same checkpoint, at
 * the same path. Consequences:
 *
 *   - A copy of a checkpoint (cp -r) is refused, even if the original does not run. A moved
 *     checkpoint is refused, too, because a move and a copy look the same.
 *   - If two machines have copies at the same path, only one copy can go on: once a new run of one
 *     copy has claimed, new runs of the other copy are refused. A run of the other copy that had
 *     claimed earlier is fenced.
 *   - Two runs that claim at the same time both stop.
 *   - A run without a claim is refused if its first batch is committed already, because a later run
 *     has gone on. Claims alone cannot show this: they exist for the last 100 runs only. Commits
 *     can: Spark commits no batch twice, and takes no commit back.
 *
 * A fenced run has lost the directory, and fails when the run next reads the claims. A run reads
 * the claims after each listing of its files. A commit reads the claims only now and then:
 *
 *   - More than half a minute after the last successful reading, the commit first reads the claims.
 *   - Five seconds to half a minute after the last successful reading, another thread reads the
 *     claims during the commit. If the run is fenced, the next commit fails.
 *
 * So a fenced run with short batches may commit for some seconds more, or for half a minute if the
 * claims cannot be read. Generations order the files written until then, as with zombies.
 */
private[cowstate] final class RunClaim(
    objects: GatewayObjects,
    root: Path,
    run: String,
    conf: Configuration,
    nanoTime: () => Long = () => System.nanoTime) {
  import RunClaim._

  private val checkpoint = {
    val path = root.getParent
    path.getFileSystem(conf).makeQualified(path).toString
  }
  private val claiming = new ReentrantLock
  /** Number of failed claims, and the last failure. Changed only under the lock `claiming`. */
  @volatile private var failures = 0
  @volatile private var failure: Throwable = _
  @volatile private var held = false
  @volatile private var verifiedNs = 0L
  private val isVerifying = new AtomicBoolean
  @volatile private var lost = Option.empty[CowStateFencedException]

  def isHeld: Boolean = held

  /**
   * Claim the directory for this run, before writing `version`. Tasks that arrive at the same time
   * wait for the first task, and fail with its failure: if the store is down, no task waits twice.
   * Throws CowStatePlaceException or CowStateFencedException.
   */
  def hold(version: Long): Unit = if (!held) {
    val failuresBefore = failures
    claiming.lockInterruptibly()
    try {
      if (!held) {
        if (failures != failuresBefore) throw failure
        try claimOnce(version)
        catch {
          // An interrupt of this task says nothing about the other tasks.
          case e: InterruptedIOException => throw e
          case NonFatal(e) if !Thread.currentThread.isInterrupted =>
            failure = e
            failures += 1
            throw e
        }
      }
    } finally claiming.unlock()
  }

  private def claimOnce(version: Long): Unit = {
    val beganNs = nanoTime()
    val claims = listed()
    if (claims.isLost(run)) throw fenced(claims)
    if (!claims.isOf(run)) {
      // Read the commits after the listing, because the runs with claims may have committed batches
      // until the listing.
      val batch = version - 1
      if (StatePlaces.lastCommitted(root, conf).exists(_ >= batch)) throw overtaken(batch)
      claim(claims)
    }
    verifiedNs = beganNs
    held = true
  }

  private def claim(claims: RunClaims): Unit = {
    StateMarker.writeOnce(new Path(runsOfCheckpoint, run), conf, "")
    claims.strange(noted().map(_.getName).toSet).foreach(other => throw forked(other))
    claims.newest.headOption.foreach { last =>
      val place = checkpointOf(last)
      if (place != checkpoint) throw moved(place)
    }
    val own = RunClaimName(claims.nextNumber, run)
    val body = Seq(
      "checkpoint" -> JString(checkpoint), "number" -> JInt(own.number), "run" -> JString(run))
    val text = StoreDocument.encoded(Kind, body)
    // Another executor of this run may have been faster: both write the same bytes.
    objects.put(s"$Runs/$own", ByteBuffer.wrap(text.getBytes(UTF_8)))
    val outdated = verify().outdated
    if (outdated.nonEmpty) objects.delete(outdated.map(name => s"$Runs/$name"))
    noted().drop(RunClaims.Kept).foreach(CheckpointFileManager.create(root, conf).delete)
  }

  /** Read the claims. Throws CowStateFencedException unless this run holds the directory. */
  def verify(): RunClaims = {
    val claims = listed()
    if (!claims.isOf(run)) throw fenced(claims)
    claims
  }

  /**
   * Verify the claim for a commit, depending on the time since the last successful `verify`:
   *
   *   - More than half a minute: run `verify` now. Throws CowStateFencedException if this run is
   *     fenced.
   *   - Five seconds to half a minute: run `verify` in another thread during the commit. If this
   *     run is fenced, the next commit throws. If the store fails, the next commit verifies again.
   *   - Less than five seconds: do nothing.
   */
  def verifyNowAndThen(): Unit = {
    lost.foreach(e => throw e)
    val sinceNs = nanoTime() - verifiedNs
    if (sinceNs > VerifyFirstNs) {
      look()
    } else if (sinceNs > VerifyNs && isVerifying.compareAndSet(false, true)) {
      Future {
        try look()
        catch {
          case e: CowStateFencedException => lost = Some(e)
          case NonFatal(_) => ()
        } finally isVerifying.set(false)
      }(ExecutionContext.global): Unit
    }
  }

  private def look(): Unit = {
    val beganNs = nanoTime()
    verify(): Unit
    verifiedNs = beganNs
  }

  private def listed(): RunClaims =
    new RunClaims(objects.list(Runs).keys.flatMap(RunClaimName.parse))

  private def runsOfCheckpoint: Path = new Path(root, NotedRuns)

  /** Return the notes in this checkpoint, the newest first. */
  private def noted(): Seq[Path] =
    CheckpointFileManager.create(runsOfCheckpoint, conf).list(runsOfCheckpoint).toSeq
      .filterNot(_.getPath.getName.startsWith(".")).sortBy(-_.getModificationTime).map(_.getPath)

  /** Return the path of the checkpoint of a claim. */
  private def checkpointOf(name: RunClaimName): String = {
    val text = objects.get(s"$Runs/$name", 0, MaxClaimBytes)
    val body = text.toRight("it is gone")
      .flatMap(bytes => StoreDocument.decoded(Kind, new String(bytes, UTF_8)))
    body.map(_ \ "checkpoint") match {
      case Right(JString(place)) => place
      case other =>
        val problem = other.left.getOrElse("it names no checkpoint")
        throw new CowStateException(
          s"${objects.url}/$Runs/$name, which says which query writes there, is damaged: " +
            s"$problem. $wayOut")
    }
  }

  private def moved(place: String) = new CowStatePlaceException(
    s"The state of $checkpoint is in ${objects.url}, where the query of $place writes: this " +
      s"checkpoint was copied or moved from there. $wayOut")

  private def forked(other: RunClaimName) = new CowStatePlaceException(
    s"The state of $checkpoint is in ${objects.url}, where run ${other.run} has gone on from " +
      s"another copy of this checkpoint. $wayOut")

  private def wayOut = {
    val store = objects.url.split('/').dropRight(1).mkString("/")
    "Give this checkpoint a copy of the state for itself: " +
      s"cowstate adopt $checkpoint --store $store --apply"
  }

  private def fenced(claims: RunClaims) = {
    val others = claims.newest.map(_.run).filter(_ != run).mkString(", ")
    refused(
      if (others.isEmpty) s"its claim is gone from $Runs/" else s"run $others has taken over")
  }

  private def overtaken(batch: Long) = refused(
    s"${root.getParent} has a commit of batch $batch, so a later run has gone on")

  private def refused(why: String) =
    new CowStateFencedException(
      s"Run $run does not write to ${objects.url} any more: $why. Nothing is lost. If two " +
        "queries use this checkpoint, or copies of it, stop one of them; otherwise start the " +
        "query again")
}

private object RunClaim {
  val Runs = "runs"
  private val NotedRuns = "cowstate-runs"
  private val Kind = "state-run"
  private val MaxClaimBytes = 1 << 20
  private val VerifyNs = TimeUnit.SECONDS.toNanos(5)
  private val VerifyFirstNs = TimeUnit.SECONDS.toNanos(30)
}
