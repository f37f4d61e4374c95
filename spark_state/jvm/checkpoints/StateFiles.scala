package org.apache.spark.sql.execution.streaming.state.cowstate

import scala.collection.mutable

/**
 * The files from which one state is restored, in the order in which they apply: a snapshot, or
 * files of an adopted checkpoint, or nothing; then changelogs, some of them merged.
 */
final case class Lineage(
    snapshot: Option[StateFileName],
    changes: Seq[StateFileName],
    adopted: Seq[HdfsStateFile] = Nil) {
  def files: Seq[StateFileName] = snapshot.toSeq ++ changes
}

/** Files that may be deleted, and the files that then stand for them, which must be whole. */
final case class Deletable(
    files: Seq[StateFileName], adopted: Seq[HdfsStateFile], standIns: Seq[StateFileName]) {
  /** By version. */
  def names: Seq[(Long, String)] =
    files.map(f => f.version -> f.toString) ++ adopted.map(f => f.version -> f.toString)
}

/** What a listing of a store's directory says. Pure. */
final class StateFiles(
    names: Iterable[StateFileName],
    val adopted: HdfsStateFiles = new HdfsStateFiles(Nil)) {
  private val snapshots = names.filter(_.isSnapshot).groupBy(_.state)
  private val changelogs = names.filter(_.isChangelog).groupBy(_.version)
  /** The files of changes that end in a state: those of most versions, and the newest, first. */
  private val changesTo: Map[StateId, Seq[StateFileName]] =
    names.filterNot(_.isSnapshot).groupBy(_.state).map { case (state, files) =>
      state -> files.toSeq.sortBy(file => (-file.versions, -file.generation))
    }

  /** The generation of a writer that has seen this listing. */
  def nextGeneration: Long = names.map(_.generation).maxOption.getOrElse(0L) + 1

  def latestOwn: Option[Long] = names.map(_.version).maxOption

  def latestVersion: Option[Long] = (latestOwn ++ adopted.latestVersion).maxOption

  /**
   * This listing without the files that rescales made of `version` for other numbers of partitions
   * than the query has there. `partitions` is asked only if there are such files.
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

  /** The snapshot of a state, the newest if there are several; None if there is none but `damaged`. */
  private def snapshotOf(state: StateId, damaged: Set[StateFileName]): Option[StateFileName] =
    snapshots.getOrElse(state, Nil).filterNot(damaged)
      .maxByOption(file => (file.generation, file.attempt))

  /**
   * The state that counts as `version`: of the highest generation, unless `unique` names one. None
   * if there is no file of it. A state has the generation of its changelog; snapshots and merged
   * files, which are written later, have no say unless that is gone. A rescaled state goes by its
   * own name, and by that of the state which it replaces: the commit log may name either.
   */
  def stateAt(version: Long, unique: Option[String]): Option[StateId] = {
    if (version == 0) return Some(StateId.Empty)
    val there = newestFirst(version)
    unique match {
      case Some(id) => there.find(file =>
          file.unique == id || file.isRescaled && file.base.contains(id)).map(_.state)
      case None =>
        there.headOption.map(_.state).orElse(
          Option.when(adopted.has(version))(StateId(version, StateId.Adopted)))
    }
  }

  /** A file of each state of a version, the one that counts first. */
  private def newestFirst(version: Long): Seq[StateFileName] = {
    val made = changelogs.getOrElse(version, Nil)
    val there = made ++ names.filter { file =>
      file.version == version && !file.isChangelog && !made.exists(_.unique == file.unique)
    }
    there.toSeq.sortBy(file => (file.generation, file.unique)).reverse
  }

  /** The attempts that made a version, the one that counts first. */
  def attemptsAt(version: Long): Seq[String] =
    newestFirst(version).filterNot(_.isRescaled).map(_.unique).distinct

  /** Whether a rescale made the state that counts as a version: it gives each store one of its own. */
  def isRescaledAt(version: Long): Boolean =
    newestFirst(version).headOption.exists(_.isRescaled)

  /** Whether an attempt made a state, and no conversion or rescale. */
  def isOfAttempt(state: StateId): Boolean =
    changelogs.getOrElse(state.version, Nil).exists(_.state == state)

  /**
   * The lineage of a state, which prefers files of many versions; or, if a file is missing, the
   * state on the way that has none. Files in `damaged` are not used. If `fromSnapshot` is given,
   * only the snapshot of that version is used.
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

  /** The lineage of a state if it needs no changes; or, on the left, the state that it lacks. */
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
   * The oldest version such that it and all later ones have a changelog; None if the newest has
   * none.
   */
  def firstWithChanges: Option[Long] =
    latestOwn.flatMap(stateAt(_, None)).flatMap { newest =>
      val first = changelogsTo(newest, 1).fold(_.version + 1, _.head.version)
      Option.when(first <= newest.version)(first)
    }

  /**
   * The changelogs that lead to a state, from the one that made `startVersion` on; or the state on
   * the way that has no changelog. Merged files do not count: they do not tell their versions
   * apart.
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
   * Files that no restore of `head`, or of a state before it from version `oldest` on, needs: what
   * is older than the newest snapshot that a restore of `oldest` may use, and than the one before
   * it, should that be damaged; and what was merged of versions before `oldest`. Files in `damaged`
   * stand for no others.
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

  /** Whether a file was merged across a snapshot: a lineage that uses it needs what was merged. */
  private def hasSnapshotInside(merged: StateFileName): Boolean =
    snapshots.keys.exists(s => s.version > merged.from.get.version && s.version < merged.version)

  /** Files of changes, also of attempts that do not count, of versions that a merged file has. */
  private def partsOf(merged: StateFileName): Iterable[StateFileName] = names.filter { file =>
    file.versions < merged.versions && file.version <= merged.version &&
      file.from.exists(_.version >= merged.from.get.version)
  }

  /** The two newest snapshots that a restore of `oldest` may use. */
  private def keptSnapshots(
      reached: collection.Set[StateId],
      oldest: Long,
      damaged: Set[StateFileName]): Seq[StateFileName] =
    reached.toSeq.filter(_.version <= oldest).flatMap(snapshotOf(_, damaged))
      .sortBy(-_.version).take(2)

  /** A state and the states that it was built upon, as far as there are files. */
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
