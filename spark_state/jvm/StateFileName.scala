package org.apache.spark.sql.execution.streaming.state.cowstate

/**
 * The names of the files of one store, which is the directory
 * <checkpointLocation>/state/<operator>/<partition>[/<store>]:
 *
 *   <version>-<generation>-<unique>-<base>.changelog.arrow    what one batch changed
 *   <version>-<generation>-<unique>.snapshot.arrow            everything at the end of one
 *
 * Version and generation are decimal, padded with zeros to 19 and 10 digits. `unique` is 16 hex
 * digits drawn by each attempt, so that no two writers meet in one name, and stands for the state
 * that the attempt made; `base` is the unique of the state that it started from, "0" for the empty
 * one. A writer's generation is above all that it found in the directory when it looked; it looks
 * when it loads a state, when its task is not a first attempt, and when it begins anything but the
 * direct continuation of its own last commit. Of two attempts of one version the one of the higher
 * generation counts: a batch that runs again replaces the run that it follows, and a zombie that
 * looked before its successor did, and wrote by then, never wins by writing late.
 *
 * What generations cannot order are two attempts of which the later one did not see a file of the
 * earlier: a zombie whose file comes after its successor looked, or a second action of foreachBatch
 * that goes, as a first attempt, to an executor that holds the state. Then either may count, whole:
 * both ran one batch upon one base, but their results may differ. Checkpoint format 2 names the one
 * that Spark took.
 *
 * A state is restored along its lineage: from the version asked for, over the bases, to a snapshot
 * or to the empty state.
 */
final case class StateFileName(
    version: Long, generation: Long, unique: String, base: Option[String]) {

  def isSnapshot: Boolean = base.isEmpty

  def state: StateId = StateId(version, unique)

  override def toString: String = {
    val start = f"$version%019d-$generation%010d-$unique"
    base match {
      case Some(id) => s"$start-$id${StateFileName.ChangelogSuffix}"
      case None => s"$start${StateFileName.SnapshotSuffix}"
    }
  }
}

object StateFileName {
  private val ChangelogSuffix = ".changelog.arrow"
  private val SnapshotSuffix = ".snapshot.arrow"
  private val Changelog =
    """(\d{19})-(\d{10})-([0-9a-f]{16})-(0|[0-9a-f]{16})\.changelog\.arrow""".r
  private val Snapshot = """(\d{19})-(\d{10})-([0-9a-f]{16})\.snapshot\.arrow""".r

  /** The parts of a name; None if it is not one of ours. */
  def parse(name: String): Option[StateFileName] = name match {
    case Changelog(version, generation, unique, base) =>
      Some(StateFileName(version.toLong, generation.toLong, unique, Some(base)))
    case Snapshot(version, generation, unique) =>
      Some(StateFileName(version.toLong, generation.toLong, unique, None))
    case _ => None
  }
}

/**
 * The files from which one state is restored, in the order in which they apply: a snapshot, or
 * files of an adopted checkpoint, or nothing; then changelogs.
 */
final case class Lineage(
    snapshot: Option[StateFileName],
    changelogs: Seq[StateFileName],
    adopted: Seq[HdfsStateFile] = Nil) {
  def files: Seq[StateFileName] = snapshot.toSeq ++ changelogs
}

/** What a listing of a store's directory says. Pure. */
final class StateFiles(
    names: Iterable[StateFileName],
    val adopted: HdfsStateFiles = new HdfsStateFiles(Nil)) {
  private val snapshots = names.filter(_.isSnapshot).groupBy(_.state)
  private val changelogs = names.filterNot(_.isSnapshot).groupBy(_.version)

  /** The generation of a writer that has seen this listing. */
  def nextGeneration: Long = names.map(_.generation).maxOption.getOrElse(0L) + 1

  def latestVersion: Option[Long] = (names.map(_.version) ++ adopted.latestVersion).maxOption

  def snapshotOf(state: StateId): Option[StateFileName] =
    snapshots.get(state).map(_.maxBy(_.generation))

  /**
   * The state that counts as `version`: of the highest generation, unless `unique` names one. None
   * if there is no file of it. A state has the generation of its changelog; snapshots, which are
   * written later, have no say unless that is gone.
   */
  def stateAt(version: Long, unique: Option[String]): Option[StateId] = {
    if (version == 0) return Some(StateId.Empty)
    val made = changelogs.getOrElse(version, Nil)
    val there = made ++ snapshots.collect {
      case (state, files) if state.version == version && !made.exists(_.unique == state.unique) =>
        files
    }.flatten
    unique match {
      case Some(id) => there.find(_.unique == id).map(_.state)
      case None =>
        there.maxByOption(file => (file.generation, file.unique)).map(_.state).orElse(
          Option.when(adopted.has(version))(StateId(version, StateId.Adopted)))
    }
  }

  /**
   * The lineage of a state, or the state on the way to it whose file is missing. Snapshots in
   * `damaged` are not used, and only that of version `fromSnapshot` if it is given.
   */
  def lineageOf(
      state: StateId,
      damaged: Set[StateFileName] = Set.empty,
      fromSnapshot: Option[Long] = None,
      damagedAdopted: Set[Long] = Set.empty): Either[StateId, Lineage] = {
    var applied = List.empty[StateFileName]
    var at = state
    while (at.unique != StateId.Empty.unique) {
      val snapshot =
        snapshotOf(at).filterNot(damaged.contains).filter(s => fromSnapshot.forall(_ == s.version))
      if (snapshot.isDefined) return Right(Lineage(snapshot, applied))
      if (at.unique == StateId.Adopted) {
        return adopted.lineageOf(at.version, damagedAdopted, fromSnapshot)
          .left.map(StateId(_, StateId.Adopted)).map(Lineage(None, applied, _))
      }
      changelogs.getOrElse(at.version, Nil).find(_.unique == at.unique) match {
        case Some(file) =>
          applied = file :: applied
          at = baseOf(at).get
        case None => return Left(at)
      }
    }
    if (fromSnapshot.isDefined) Left(StateId.Empty) else Right(Lineage(None, applied))
  }

  /** The oldest version that was made upon files of an adopted checkpoint, if one was. */
  def firstUponAdopted: Option[Long] =
    names.filter(_.base.contains(StateId.Adopted)).map(_.version).minOption

  /**
   * The changelogs that lead to a state, from the one that made `startVersion` on, or the state on
   * the way that has none.
   */
  def changelogsTo(state: StateId, startVersion: Long): Either[StateId, Seq[StateFileName]] = {
    var found = List.empty[StateFileName]
    var at = state
    while (at.version >= startVersion && at.unique != StateId.Empty.unique) {
      changelogs.getOrElse(at.version, Nil).find(_.unique == at.unique) match {
        case Some(file) => found = file :: found
        case None => return Left(at)
      }
      at = baseOf(at).get
    }
    Right(found)
  }

  /**
   * Files that no restore of `head`, or of a state before it from version `oldest` on, needs: what
   * is older than the newest snapshot that a restore of `oldest` may use, and than the one before
   * it, should that be damaged.
   */
  def deletable(head: StateId, oldest: Long): Seq[StateFileName] =
    oldestKept(head, oldest).toSeq.flatMap { kept =>
      names.filter(n => n.version < kept || (n.version == kept && !n.isSnapshot))
    }

  /** As `deletable`, of the files of an adopted checkpoint. */
  def deletableAdopted(head: StateId, oldest: Long): Seq[HdfsStateFile] =
    oldestKept(head, oldest).toSeq.flatMap(kept => adopted.all.filter(_.version <= kept))

  private def oldestKept(head: StateId, oldest: Long): Option[Long] = {
    val usable = ancestors(head).filter(s => s.version <= oldest && snapshots.contains(s)).take(2)
    usable.lift(1).map(_.version)
  }

  /** A state and those it was built upon, as far as there are files. */
  private def ancestors(head: StateId): Seq[StateId] =
    Iterator.iterate(Option(head))(_.flatMap(baseOf)).takeWhile(_.isDefined).map(_.get).toSeq

  private def baseOf(state: StateId): Option[StateId] =
    changelogs.getOrElse(state.version, Nil).find(_.unique == state.unique).flatMap(_.base)
      .map(StateId(state.version - 1, _))
}
