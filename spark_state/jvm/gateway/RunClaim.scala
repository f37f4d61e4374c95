package org.apache.spark.sql.execution.streaming.state.cowstate

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

/** A claim as its name tells it: `runs/<number>-<run>.json`, the number with 19 digits. */
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

/** What claims of a directory say to a run that wants to write there. Pure. */
private[cowstate] final class RunClaims(names: Iterable[RunClaimName]) {
  /** The newest claims; several if runs claimed the directory at once. */
  val newest: Seq[RunClaimName] = {
    val number = names.map(_.number).maxOption
    names.filter(name => number.contains(name.number)).toSeq.sortBy(_.run)
  }

  def nextNumber: Long = newest.headOption.map(_.number).getOrElse(0L) + 1

  def isOf(run: String): Boolean = newest.map(_.run) == Seq(run)

  /** Whether a later run has claimed it after this one did. */
  def isLost(run: String): Boolean = names.exists(_.run == run) && !isOf(run)

  /** A run that the copy of the checkpoint does not have that has had `runs`. */
  def strange(runs: Set[String]): Option[RunClaimName] = newest.find(name => !runs(name.run))

  /** Claims of runs so long ago that what Spark has committed tells them, if one is left. */
  def outdated: Seq[RunClaimName] = {
    val kept = names.map(_.number).toSeq.distinct.sortBy(-_).take(RunClaims.Kept).toSet
    names.filterNot(name => kept(name.number)).toSeq
  }
}

private[cowstate] object RunClaims {
  val Kept = 100
}

/**
 * Which run of a query writes into a directory of the store. Two queries would take each other's
 * files for their own, so there is one writer at a time:
 *
 *   <store>/<directory>/runs/<number>-<run>.json    a run began to write: where its checkpoint is
 *   <checkpoint>/state/cowstate-runs/<run>          a run of this copy of the checkpoint
 *
 * A run first notes itself in its checkpoint, and then claims the directory with the next number.
 * It may do so if the newest claim is of a run that its checkpoint has, at the same place. So
 *
 *   - a copy of a checkpoint (cp -r) is refused, whether the original runs or not, and so is a
 *     checkpoint that was moved: nobody can tell it from a copy;
 *   - a copy that is at the same place, on another machine, is refused as soon as the other one has
 *     run since they parted. If both run, the one that claimed first is fenced;
 *   - two that claim at once both stop;
 *   - so is a run that begins anew somewhere with a batch that is committed: a later run has gone on.
 *     Claims tell that of the last 100 runs only. Spark commits no batch twice, and takes no commit
 *     back.
 *
 * A run that is fenced notices it with its next listing, or when it commits. A commit looks first if
 * the last look that the store answered was half a minute ago. If it was some seconds ago, the look
 * begins beside the commit and counts for the next one: so a run with short batches may commit for
 * some seconds more, and for half a minute while the store lists nothing.
 * Generations order the files that it wrote until then, as they do those of zombies.
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
  /** How many tries failed, and the last failure. Changed by who has the lock. */
  @volatile private var failures = 0
  @volatile private var failure: Throwable = _
  @volatile private var held = false
  @volatile private var verifiedNs = 0L
  private val isVerifying = new AtomicBoolean
  @volatile private var lost = Option.empty[CowStateFencedException]

  def isHeld: Boolean = held

  /**
   * Claim the directory for this run, which is to write `version`. Tasks that come at once wait for
   * the first of them, and fail as it does: a store that is down makes none of them wait twice.
   * Throws CowStatePlaceException, CowStateFencedException.
   */
  def hold(version: Long): Unit = if (!held) {
    val failuresBefore = failures
    claiming.lockInterruptibly()
    try {
      if (!held) {
        if (failures != failuresBefore) throw failure
        try claimOnce(version)
        catch {
          // That this task is to end says nothing to the others.
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
      // After the listing: what was committed until then, the runs that have claims may have.
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
    // Another executor of this run may have been faster: both write the same.
    objects.put(s"$Runs/$own", ByteBuffer.wrap(text.getBytes(UTF_8)))
    val outdated = verify().outdated
    if (outdated.nonEmpty) objects.delete(outdated.map(name => s"$Runs/$name"))
    noted().drop(RunClaims.Kept).foreach(CheckpointFileManager.create(root, conf).delete)
  }

  /** Throws CowStateFencedException unless this run is the one that writes here. */
  def verify(): RunClaims = {
    val claims = listed()
    if (!claims.isOf(run)) throw fenced(claims)
    claims
  }

  /**
   * Before a commit: throws what `verify` throws if the last look that the store answered was long
   * ago. If it was some seconds ago, `verify` runs beside the commit, and the next commit throws
   * that this run is fenced. A store that fails is asked again by the next commit.
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

  /** The notes of this checkpoint, the newest first. Those from before a move count if it is undone. */
  private def noted(): Seq[Path] =
    CheckpointFileManager.create(runsOfCheckpoint, conf).list(runsOfCheckpoint).toSeq
      .filterNot(_.getPath.getName.startsWith(".")).sortBy(-_.getModificationTime).map(_.getPath)

  /** Where the checkpoint of a claim is. */
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
