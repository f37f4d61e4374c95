package org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  HdfsStateFile, StateFileName, StateId
}

/**
 * Files for the restore of a state, in order: first a snapshot, files of an adopted checkpoint, or
 * nothing; then changelogs and merged files.
 */
final case class Lineage(
    snapshot: Option[StateFileName],
    changes: Seq[StateFileName],
    adopted: Seq[HdfsStateFile] = Nil) {
  def files: Seq[StateFileName] = snapshot.toSeq ++ changes
}

/**
 * Files to delete, and `standIns`, the files that replace the deleted files and must be whole.
 */
final case class Deletable(
    files: Seq[StateFileName], adopted: Seq[HdfsStateFile], standIns: Seq[StateFileName]) {
  /** Names of the files to delete, each with the version of the file. */
  def names: Seq[(Long, String)] =
    files.map(f => f.version -> f.toString) ++ adopted.map(f => f.version -> f.toString)
}

/** Listing of a store's directory: chooses files and states from the listed names. Pure. */
final class StateFiles(
    names: Iterable[StateFileName],
    val adopted: HdfsStateFiles = new HdfsStateFiles(Nil)) {
  private val snapshots = names.filter(_.isSnapshot).groupBy(_.state)
  private val changelogs = names.filter(_.isChangelog).groupBy(_.version)
  /**
   * Files of changes by end state, in descending order of the number of versions, then of the
   * generation.
   */
  private val changesTo: Map[StateId, Seq[StateFileName]] =
    names.filterNot(_.isSnapshot).groupBy(_.state).map { case (state, files) =>
      state -> files.toSeq.sortBy(file => (-file.versions, -file.generation))
    }

  /** Generation for a writer that has seen this listing: above all generations in the listing. */
  def nextGeneration: Long = names.map(_.generation).maxOption.getOrElse(0L) + 1

  def latestOwn: Option[Long] = names.map(_.version).maxOption

  def latestVersion: Option[Long] = (latestOwn ++ adopted.latestVersion).maxOption

  /**
   * Return this listing without the rescaled files of `version` that are for another number of
   * partitions than the query has at `version`. `partitions` returns the number that the query has
   * at a version, and is called only if there are rescaled files.
   */
  def dealtOut(version: Long, partitions: Long => Int): StateFiles = {
    val rescaled = names.filter(file => file.isRescaled && file.version == version)
    if (rescaled.isEmpty) this
    else {
      val count = partitions(version)
      new StateFiles(
        names.filterNot(rescaled.filterNot(_.rescale.exists(_.partitions == count)).toSet), adopted)
    }
  }

  /**
   * Return the newest snapshot of a state, without the snapshots in `damaged`; None if no snapshot
   * is left.
   */
  private def snapshotOf(state: StateId, damaged: Set[StateFileName]): Option[StateFileName] =
    snapshots.getOrElse(state, Nil).filterNot(damaged)
      .maxByOption(file => (file.generation, file.attempt))

  /**
   * Return the state that counts as `version`: the state with checkpoint id `unique` if given,
   * otherwise the state of the highest generation. None if there is no file of the version. The
   * generation of a state is the generation of its changelog. Snapshots and merged files are
   * written later, so their generations are used only if the changelog is gone. A rescaled state
   * has two ids, a new id and the id of the replaced state, because the commit log may hold either.
   */
  def stateAt(version: Long, unique: Option[String]): Option[StateId] = {
    if (version == 0) return Some(StateId.Empty)
    val there = newestFirst(version)
    unique.map(StateId.uniqueOf) match {
      case Some(id) => there.find(file =>
          file.unique == id || file.isRescaled && file.base.contains(id)).map(_.state)
      case None =>
        there.headOption.map(_.state).orElse(
          Option.when(adopted.has(version))(StateId(version, StateId.Adopted)))
    }
  }

  /** Return a file of each state of a version; the state that counts comes first. */
  private def newestFirst(version: Long): Seq[StateFileName] = {
    val made = changelogs.getOrElse(version, Nil)
    val there = made ++ names.filter { file =>
      file.version == version && !file.isChangelog && !made.exists(_.unique == file.unique)
    }
    there.toSeq.sortBy(file => (file.generation, file.unique)).reverse
  }

  /** Return the attempts at a version; the attempt that counts comes first. */
  def attemptsAt(version: Long): Seq[String] =
    newestFirst(version).filterNot(_.isRescaled).map(_.unique).distinct

  /**
   * True if a rescale made the state that counts as `version`. A rescale makes a separate state for
   * each store.
   */
  def isRescaledAt(version: Long): Boolean =
    newestFirst(version).headOption.exists(_.isRescaled)

  /** True if an attempt made the state, rather than a conversion or a rescale. */
  def isOfAttempt(state: StateId): Boolean =
    changelogs.getOrElse(state.version, Nil).exists(_.state == state)

  /**
   * Return the lineage of a state. Files that cover many versions are preferred. If files are
   * missing, return Left with the state to which no file leads. Files in `damaged` are not used. If
   * `fromSnapshot` is given, only the snapshot of version `fromSnapshot` is used.
   */
  def lineageOf(
      state: StateId,
      damaged: Set[StateFileName] = Set.empty,
      fromSnapshot: Option[Long] = None,
      damagedAdopted: Set[Long] = Set.empty): Either[StateId, Lineage] = {
    val open = mutable.Stack((state, List.empty[StateFileName]))
    val seen = mutable.Set.empty[StateId]
    var gap = Option.empty[StateId]
    while (open.nonEmpty) {
      val (at, applied) = open.pop()
      if (seen.add(at)) {
        beginningAt(at, damaged, fromSnapshot, damagedAdopted) match {
          case Right(Some(begin)) => return Right(begin.copy(changes = applied))
          case Right(None) =>
            val intact = changesTo.getOrElse(at, Nil).filterNot(damaged)
            if (intact.isEmpty) gap = gap.orElse(Some(at))
            intact.reverseIterator.foreach(file => open.push((file.from.get, file :: applied)))
          case Left(missing) => gap = gap.orElse(Some(missing))
        }
      }
    }
    Left(gap.get)
  }

  /**
   * Return the lineage of a state that is restored without a changelog or merged file: from a
   * snapshot, from files of an adopted checkpoint, or as the empty state. None if the restore needs
   * a changelog or merged file. On the left, return the state whose files are missing.
   */
  private def beginningAt(
      at: StateId,
      damaged: Set[StateFileName],
      fromSnapshot: Option[Long],
      damagedAdopted: Set[Long]): Either[StateId, Option[Lineage]] = {
    val snapshot =
      snapshotOf(at, damaged).filter(file => fromSnapshot.forall(_ == file.version))
    if (snapshot.isDefined) {
      Right(Some(Lineage(snapshot, Nil)))
    } else if (at.unique == StateId.Adopted) {
      adopted.lineageOf(at.version, damagedAdopted, fromSnapshot)
        .left.map(StateId(_, StateId.Adopted)).map(files => Some(Lineage(None, Nil, files)))
    } else if (at.unique != StateId.Empty.unique) {
      Right(None)
    } else if (fromSnapshot.isDefined) {
      Left(StateId.Empty)
    } else {
      Right(Some(Lineage(None, Nil)))
    }
  }

  /**
   * Return the first version of the unbroken series of changelogs up to the newest version; None if
   * the newest version has no changelog.
   */
  def firstWithChanges: Option[Long] =
    latestOwn.flatMap(stateAt(_, None)).flatMap { newest =>
      val first = changelogsTo(newest, 1).fold(_.version + 1, _.head.version)
      Option.when(first <= newest.version)(first)
    }

  /**
   * Return the changelogs that lead to a state, from version `startVersion` on. If a changelog is
   * missing, return Left with the state to which no changelog leads. Merged files are not used,
   * because a merged file does not tell the changes of single versions apart.
   */
  def changelogsTo(state: StateId, startVersion: Long): Either[StateId, Seq[StateFileName]] = {
    var chain = List.empty[StateFileName]
    var at = state
    while (at.version >= startVersion && at.unique != StateId.Empty.unique) {
      changesTo.getOrElse(at, Nil).find(_.isChangelog) match {
        case Some(file) =>
          chain = file :: chain
          at = file.from.get
        case None => return Left(at)
      }
    }
    Right(chain)
  }

  /**
   * Return the files that are not needed to restore `head`, or an earlier state back to version
   * `oldest`:
   *
   *   - Files older than the two newest snapshots usable for a restore of `oldest`. Two snapshots
   *     are kept, in case the newer snapshot is damaged.
   *   - Files of changes that are part of a merged file, if the version of the merged file is
   *     before `oldest`.
   *
   * Files in `damaged` replace no files.
   */
  def deletable(head: StateId, oldest: Long, damaged: Set[StateFileName] = Set.empty): Deletable = {
    val reached = ancestors(head)
    val kept = keptSnapshots(reached, oldest, damaged)
    val oldestKept = kept.lift(1).map(_.version)
    val outdated = oldestKept.toSeq.flatMap { kept =>
      names.filter(n => n.version < kept || (n.version == kept && !n.isSnapshot))
    }
    val merged = names.toSeq.filter { file =>
      file.isMerged && file.version < oldest && reached(file.state) && !hasSnapshotInside(file) &&
        !damaged(file)
    }.map(file => file -> partsOf(file)).filter(_._2.nonEmpty)
    Deletable(
      (outdated ++ merged.flatMap(_._2)).distinct,
      oldestKept.toSeq.flatMap(kept => adopted.all.filter(_.version <= kept)),
      (if (oldestKept.isDefined) kept else Nil) ++ merged.map(_._1))
  }

  /**
   * True if there is a snapshot between the first and the last version of a merged file. A lineage
   * from this snapshot needs the files of changes that are part of the merged file.
   */
  private def hasSnapshotInside(merged: StateFileName): Boolean =
    snapshots.keys.exists(s => s.version > merged.from.get.version && s.version < merged.version)

  /**
   * Return the files of changes whose versions a merged file contains, including files of attempts
   * that do not count.
   */
  private def partsOf(merged: StateFileName): Iterable[StateFileName] = names.filter { file =>
    file.versions < merged.versions && file.version <= merged.version &&
      file.from.exists(_.version >= merged.from.get.version)
  }

  /** Return the two newest snapshots usable for a restore of `oldest`. */
  private def keptSnapshots(
      reached: collection.Set[StateId],
      oldest: Long,
      damaged: Set[StateFileName]): Seq[StateFileName] =
    reached.toSeq.filter(_.version <= oldest).flatMap(snapshotOf(_, damaged))
      .sortBy(-_.version).take(2)

  /** Return a state and all ancestors of the state, as far back as files exist. */
  private def ancestors(head: StateId): collection.Set[StateId] = {
    val reached = mutable.Set(head)
    val open = mutable.Stack(head)
    while (open.nonEmpty) {
      changesTo.getOrElse(open.pop(), Nil).flatMap(_.from).foreach { state =>
        if (reached.add(state)) open.push(state)
      }
    }
    reached
  }
}
