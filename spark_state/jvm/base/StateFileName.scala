package org.apache.spark.sql.execution.streaming.state.cowstate.base

/** Numbers of partitions of a query before and after a rescale. */
final case class PartitionNumbers(former: Int, partitions: Int) {
  override def toString: String = f"-$former%010d-$partitions%010d"
}

/**
 * Name of a file of a store. The directory of the store is
 * <checkpointLocation>/state/<operator>/<partition>[/<store>]. The names and contents are:
 *
 *   <version>-<generation>-<unique>-<base>.changelog.arrow
 *       the changes of a batch
 *   <version>-<generation>-<unique>-<base>-<versions>-<attempt>.merged.arrow
 *       the changes of several batches
 *   <version>-<generation>-<unique>-<attempt>.snapshot.arrow
 *       the whole state at the end of a batch
 *   <version>-<generation>-<unique>-<base>-<former>-<partitions>-<attempt>.rescaled.arrow
 *       the whole state, for another number of partitions
 *
 * The parts of a name:
 *
 *   - version: decimal, padded with zeros to 19 digits; all other numbers have 10 digits.
 *   - unique: 16 hex digits, the id of the state made by an attempt. Each attempt draws one id, and
 *     uses the id in all stores of an operator that the attempt writes. So two writers never use
 *     the same name.
 *   - base: the unique of the state before the changes, "0" for the empty state. A merged file
 *     leads from the base, `versions` versions earlier, to the state of the file.
 *   - attempt: drawn by the writer of a merged file or snapshot.
 *
 * A rescaled file is written by `cowstate rescale` from the `former` partitions of a version. The
 * file holds the partition's rows if the query has `partitions` partitions. Here `unique` is the id
 * of a new state, `base` the id of the partition's replaced state ("0" if there was none), and
 * `attempt` the id of the rescale. The file is used only as long as the offset log says that the
 * query has `partitions` partitions at the version, see QueryPartitions.
 *
 * The generation of a writer is above all generations found in the directory. A writer looks into
 * the directory in these cases:
 *
 *   - The writer loads a state.
 *   - The task is not a first attempt.
 *   - The batch does not begin upon the state that the writer loaded or committed last.
 *   - The directory is in an object store, and the run of the query begins to write.
 *
 * If two attempts made the same version, the higher generation counts. So a rerun of a batch
 * replaces the earlier run. A zombie is a killed attempt that still writes. If the zombie wrote a
 * file before its successor looked into the directory, the successor's generation is higher, and
 * the zombie's file does not count.
 *
 * Generations cannot order two attempts if the later attempt did not see a file of the earlier
 * attempt. Two cases are possible:
 *
 *   - A file of a zombie arrives after the successor looked into the directory.
 *   - A function of foreachBatch starts two actions on the batch. A task of the second action is a
 *     first attempt. If the task runs on another executor, with the state in memory, the task does
 *     not look into the directory.
 *
 * In both cases either attempt may count. The two attempts ran the same batch upon the same base,
 * but the results may differ. The same attempt counts in all stores of the operator, for two
 * reasons: all stores of an attempt have the same generation and the same `unique`; and an attempt
 * killed before writing all stores counts in no store, see WholeAttempts. In checkpoint format 2,
 * Spark names the attempt that counts.
 *
 * StateFiles chooses the files that make up a state.
 */
final case class StateFileName(
    version: Long,
    generation: Long,
    unique: String,
    base: Option[String],
    versions: Long = 1,
    attempt: Option[String] = None,
    rescale: Option[PartitionNumbers] = None) {

  def isRescaled: Boolean = rescale.isDefined

  /** True if the file holds the whole state, so a restore needs only this file. */
  def isSnapshot: Boolean = base.isEmpty || isRescaled

  def isMerged: Boolean = versions > 1

  def isChangelog: Boolean = !isSnapshot && !isMerged

  def kind: String =
    if (isRescaled) "rescaled"
    else if (isSnapshot) "snapshot"
    else if (isMerged) "merged"
    else "changelog"

  /** State after the changes of the file, or the state that a snapshot holds. */
  def state: StateId = StateId(version, unique)

  /** State before the file's changes; None for a snapshot. */
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
  private val Attempt = "([0-9a-f]{16})"
  private val Changelog = s"$State-$Base\\.changelog\\.arrow".r
  private val Merged = s"$State-$Base-(\\d{10})-$Attempt\\.merged\\.arrow".r
  private val Snapshot = s"$State-$Attempt\\.snapshot\\.arrow".r
  private val Rescaled = s"$State-$Base-(\\d{10})-(\\d{10})-$Attempt\\.rescaled\\.arrow".r

  /** Parse a name. Returns None for a foreign file. */
  def parse(name: String): Option[StateFileName] = name match {
    case Changelog(version, generation, unique, base) =>
      Some(StateFileName(version.toLong, generation.toLong, unique, Some(base)))
    case Merged(version, generation, unique, base, versions, attempt) =>
      val file = StateFileName(
        version.toLong, generation.toLong, unique, Some(base), versions.toLong, Some(attempt))
      Some(file).filter(_ => file.isMerged && file.versions <= file.version)
    case Snapshot(version, generation, unique, attempt) =>
      Some(ofSnapshot(StateId(version.toLong, unique), generation.toLong, attempt))
    case Rescaled(version, generation, unique, base, former, partitions, attempt) =>
      for {
        from <- former.toIntOption if from > 0
        to <- partitions.toIntOption if to > 0
      } yield StateFileName(
        version.toLong, generation.toLong, unique, Some(base), attempt = Some(attempt),
        rescale = Some(PartitionNumbers(from, to)))
    case _ => None
  }

  /** Return the name of a snapshot of a state. */
  def ofSnapshot(state: StateId, generation: Long, attempt: String): StateFileName =
    StateFileName(state.version, generation, state.unique, None, attempt = Some(attempt))

  /** Return the name of the file that merges consecutive files of changes. */
  def merging(files: Seq[StateFileName], generation: Long, attempt: String): StateFileName =
    files.last.copy(
      generation = generation,
      base = files.head.base,
      versions = files.map(_.versions).sum,
      attempt = Some(attempt))
}
