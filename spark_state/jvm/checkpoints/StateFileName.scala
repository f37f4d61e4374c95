package org.apache.spark.sql.execution.streaming.state.cowstate

/** How many partitions a query had, and how many it has then. */
final case class Rescale(former: Int, partitions: Int) {
  override def toString: String = f"-$former%010d-$partitions%010d"
}

/**
 * The names of the files of one store, which is the directory
 * <checkpointLocation>/state/<operator>/<partition>[/<store>]:
 *
 *   <version>-<generation>-<unique>-<base>.changelog.arrow    what one batch changed
 *   <version>-<generation>-<unique>-<base>-<versions>-<attempt>.merged.arrow    what several did
 *   <version>-<generation>-<unique>-<attempt>.snapshot.arrow  everything at the end of one
 *   <version>-<generation>-<unique>-<base>-<former>-<partitions>-<attempt>.rescaled.arrow
 *                                          the same, for another number of partitions
 *
 * Version is decimal, padded with zeros to 19 digits, the other numbers to 10. `unique` is 16
 * hex digits drawn by each attempt for the stores that it writes of an operator, so that no two
 * writers meet in one name, and stands for the state that the attempt made; `base` is the unique of the state that it started from, "0" for the
 * empty one. A merged file leads to its state from the one `versions` before it, which is `base`;
 * `attempt` is drawn by who merged, or took the snapshot, and missing in files of early builds.
 *
 * A rescaled file is what `cowstate rescale` makes of the `former` partitions of a version: the rows
 * that this partition has if the query has `partitions` of them. Its `unique` stands for a state of
 * its own, and `base` for the state of this partition that it replaces, "0" if there was none;
 * `attempt` is the rescale. It counts only as long as the offset log gives that version this number
 * of partitions, see QueryPartitions.
 *
 * A writer's generation is above all that it found in the directory when it looked; it looks when
 * it loads a state, when its task is not a first attempt, and when it begins anything but the
 * direct continuation of its own last commit. If two attempts made one version, the one of the higher
 * generation counts: a batch that runs again replaces the run that it follows, and a zombie that
 * looked before its successor did, and wrote by then, never wins by writing late.
 *
 * Generations cannot order two attempts if the later one did not see a file of the earlier one.
 * That may be a zombie whose file comes after its successor looked, or a second action of
 * foreachBatch that goes, as a first attempt, to an executor that holds the state. Then either may
 * count, as a whole: both ran one batch upon one base, but their results may differ. It is the same
 * one in all stores of the operator, because an attempt gives them one generation and one `unique`,
 * and because one that was killed before it had written all of them counts in none, see
 * WholeAttempts. Checkpoint format 2 names the one that Spark took.
 *
 * StateFiles says which files make up a state.
 */
final case class StateFileName(
    version: Long,
    generation: Long,
    unique: String,
    base: Option[String],
    versions: Long = 1,
    attempt: Option[String] = None,
    rescale: Option[Rescale] = None) {

  def isRescaled: Boolean = rescale.isDefined

  /** Whether it holds everything: it needs no other file. */
  def isSnapshot: Boolean = base.isEmpty || isRescaled

  def isMerged: Boolean = versions > 1

  def isChangelog: Boolean = !isSnapshot && !isMerged

  def kind: String =
    if (isRescaled) "rescaled"
    else if (isSnapshot) "snapshot"
    else if (isMerged) "merged"
    else "changelog"

  /** The state that the file ends in. */
  def state: StateId = StateId(version, unique)

  /** The state upon which the file applies; None for a snapshot. */
  def from: Option[StateId] =
    base.filterNot(_ => isRescaled).map(StateId(version - versions, _))

  override def toString: String = {
    val upon = base.map("-" + _).mkString
    val span = if (isMerged) f"-$versions%010d" else rescale.mkString
    val by = attempt.map("-" + _).mkString
    f"$version%019d-$generation%010d-$unique$upon$span$by.$kind.arrow"
  }
}

object StateFileName {
  private val State = """(\d{19})-(\d{10})-([0-9a-f]{16})"""
  private val Base = "(0|[0-9a-f]{16})"
  private val Attempt = "(?:-([0-9a-f]{16}))?"
  private val Changelog = s"$State-$Base\\.changelog\\.arrow".r
  private val Merged = s"$State-$Base-(\\d{10})$Attempt\\.merged\\.arrow".r
  private val Snapshot = s"$State$Attempt\\.snapshot\\.arrow".r
  private val Rescaled =
    s"$State-$Base-(\\d{10})-(\\d{10})-([0-9a-f]{16})\\.rescaled\\.arrow".r

  /** The parts of a name; None if it is not one of ours. */
  def parse(name: String): Option[StateFileName] = name match {
    case Changelog(version, generation, unique, base) =>
      Some(StateFileName(version.toLong, generation.toLong, unique, Some(base)))
    case Merged(version, generation, unique, base, versions, attempt) =>
      val file = StateFileName(
        version.toLong, generation.toLong, unique, Some(base), versions.toLong, Option(attempt))
      Some(file).filter(_ => file.isMerged && file.versions <= file.version)
    case Snapshot(version, generation, unique, attempt) =>
      Some(StateFileName(
          version.toLong, generation.toLong, unique, None, attempt = Option(attempt)))
    case Rescaled(version, generation, unique, base, former, partitions, attempt) =>
      for {
        from <- former.toIntOption if from > 0
        to <- partitions.toIntOption if to > 0
      } yield StateFileName(
        version.toLong, generation.toLong, unique, Some(base), attempt = Some(attempt),
        rescale = Some(Rescale(from, to)))
    case _ => None
  }

  /** The name of a snapshot of a state. */
  def ofSnapshot(state: StateId, generation: Long, attempt: String): StateFileName =
    StateFileName(state.version, generation, state.unique, None, attempt = Some(attempt))

  /**
   * The name of the file that files of changes are merged to; each is upon the state of the one
   * before it.
   */
  def merging(files: Seq[StateFileName], generation: Long, attempt: String): StateFileName =
    files.last.copy(
      generation = generation,
      base = files.head.base,
      versions = files.map(_.versions).sum,
      attempt = Some(attempt))
}
