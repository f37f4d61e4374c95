package org.apache.spark.sql.execution.streaming.state.cowstate.base

import org.apache.spark.sql.execution.streaming.state.StateStoreConf

/**
 * Configuration of the provider: the settings spark.sql.streaming.stateStore.cowstate.*
 *
 * @param maxMemoryBytes limit for the memory of all stores of an executor
 * @param lockSeconds    time that a task waits for another task that uses the store
 * @param syncsChanges   true if the changes of a batch are on the disk before its commit returns
 * @param isOnDisk       true for a state in mapped files of a local directory, false for the heap
 * @param localDirectory directory of the mapped files; None for a local directory of Spark
 * @param store          object store that keeps the files
 */
final case class CowStateConf(
    maxMemoryBytes: Long,
    lockSeconds: Long,
    syncsChanges: Boolean,
    isOnDisk: Boolean,
    localDirectory: Option[String],
    store: StoreSettings)

object CowStateConf {
  private val Prefix = "spark.sql.streaming.stateStore.cowstate."
  /**
   * Prefix of the settings of the operators in Python. The names behind the prefix are known in
   * Python only.
   */
  private val PrefixOfOperators = "spark.cowstate."
  val MaxMemoryMb: String = Prefix + "maxMemoryMB"
  val LockTimeoutSeconds: String = Prefix + "lockTimeoutSeconds"
  val Fsync: String = Prefix + "fsync"
  val Backend: String = Prefix + "backend"
  val LocalDirectory: String = Prefix + "localDirectory"
  val Heap = "heap"
  val Disk = "disk"
  val Store: String = Prefix + "store"
  val StoreOptions: String = Prefix + "storeOptions"
  val StoreRetrySeconds: String = Prefix + "storeRetrySeconds"
  val ChangePlans: String = Prefix + "changePlans"
  private val DefaultLockSeconds = 60L
  private val ShareOfHeap = 0.6
  private val SyncsByDefault = true

  private val Misspelled = new MisspelledKeys(
    Prefix,
    Seq(
      MaxMemoryMb, LockTimeoutSeconds, Fsync, Backend, LocalDirectory, Store, StoreOptions,
      StoreRetrySeconds, ChangePlans).map(_.stripPrefix(Prefix)))

  /** Throws IllegalArgumentException for a misspelled key among the settings of a session. */
  def refuseMisspelled(settings: Map[String, String]): Unit = {
    new MisspelledKeys(PrefixOfOperators, Nil).refuse(settings)
    Misspelled.refuse(settings)
  }

  /** Read the configuration. Throws IllegalArgumentException for an unknown key or a bad value. */
  def apply(conf: StateStoreConf): CowStateConf = {
    val ours = conf.sqlConfs.filter(_._1.toLowerCase.startsWith(Prefix.toLowerCase))
    Misspelled.refuseUnknown(ours)
    // Only the driver uses the value. Check the value here, because a session without the rule for
    // plans would not find a bad value.
    changesPlans(ours)
    val values = byLowerCase(ours)
    val maxMemory = wholeNumber(values, MaxMemoryMb).map(_ << 20)
      .getOrElse((Runtime.getRuntime.maxMemory * ShareOfHeap).toLong)
    CowStateConf(
      maxMemory,
      wholeNumber(values, LockTimeoutSeconds).getOrElse(DefaultLockSeconds),
      trueOrFalse(values, Fsync).getOrElse(SyncsByDefault),
      isOnDisk = choice(values, Backend, Seq(Heap, Disk)).contains(Disk),
      values.get(LocalDirectory.toLowerCase).map(_.trim),
      StoreSettings(
        values.get(Store.toLowerCase), values.get(StoreOptions.toLowerCase),
        wholeNumber(values, StoreRetrySeconds)))
  }

  /**
   * True if the configuration of a session lets the provider change the plans of queries. Throws
   * IllegalArgumentException for a bad value.
   */
  def changesPlans(conf: Map[String, String]): Boolean =
    trueOrFalse(byLowerCase(conf), ChangePlans).getOrElse(true)

  private def byLowerCase(values: Map[String, String]): Map[String, String] =
    values.map { case (key, value) => key.toLowerCase -> value }

  private def wholeNumber(values: Map[String, String], key: String): Option[Long] =
    values.get(key.toLowerCase).map { text =>
      text.trim.toLongOption.filter(n => n >= 1 && n < (1L << 40)).getOrElse(
        throw new IllegalArgumentException(
          s"$key is '$text'; allowed are whole numbers from 1"))
    }

  private def choice(
      values: Map[String, String], key: String, allowed: Seq[String]): Option[String] =
    values.get(key.toLowerCase).map { text =>
      allowed.find(_.equalsIgnoreCase(text.trim)).getOrElse(
        throw new IllegalArgumentException(
          s"$key is '$text'; allowed are ${allowed.mkString(" and ")}"))
    }

  private def trueOrFalse(values: Map[String, String], key: String): Option[Boolean] =
    values.get(key.toLowerCase).map { text =>
      text.trim.toLowerCase.toBooleanOption.getOrElse(
        throw new IllegalArgumentException(s"$key is '$text'; allowed are true and false"))
    }
}
