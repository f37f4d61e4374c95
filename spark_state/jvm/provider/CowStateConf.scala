package org.apache.spark.sql.execution.streaming.state.cowstate

import scala.util.control.NonFatal

import org.apache.spark.{SparkConf, SparkEnv}
import org.apache.spark.io.CompressionCodec
import org.apache.spark.sql.execution.streaming.state.StateStoreConf
import org.apache.spark.sql.internal.SQLConf

/**
 * The provider's own configuration, spark.sql.streaming.stateStore.cowstate.*
 *
 * @param maxMemoryBytes limit of what all stores of an executor hold
 * @param lockSeconds    how long a task waits for another one that uses the store
 * @param syncsChanges   whether a batch's changes are on the disk before its commit returns
 * @param isOnDisk       whether the state is in mapped files of a local directory, not on the heap
 * @param localDirectory the directory; None for one of Spark's
 * @param store          the object store that keeps the files
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
  /** The prefix of the operators in Python, which know the names below it. */
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
  private val Codec = "spark.sql.streaming.stateStore.compression.codec"
  private val DefaultLockSeconds = 60L
  private val ShareOfHeap = 0.6
  private val SyncsByDefault = true

  private val Misspelled = new MisspelledKeys(
    Prefix,
    Seq(
      MaxMemoryMb, LockTimeoutSeconds, Fsync, Backend, LocalDirectory, Store, StoreOptions,
      StoreRetrySeconds, ChangePlans).map(_.stripPrefix(Prefix)))

  /**
   * What the configuration of a session says, before a query starts in it: no task is needed to find
   * what is wrong. Throws IllegalArgumentException.
   */
  def check(conf: SQLConf): Unit = {
    val settings = conf.getAllConfs
    new MisspelledKeys(PrefixOfOperators, Nil).refuse(settings)
    Misspelled.refuse(settings)
    if (StatefulPlanRule.isOurs(conf.stateStoreProviderClass)) apply(new StateStoreConf(conf)): Unit
  }

  /** Throws IllegalArgumentException for a key that is unknown or a value that is out of range. */
  def apply(conf: StateStoreConf): CowStateConf = {
    val ours = conf.sqlConfs.filter(_._1.toLowerCase.startsWith(Prefix.toLowerCase))
    Misspelled.refuseUnknown(ours)
    checkCodec(conf.compressionCodec)
    // The driver uses it. A session without its rule would not find a bad value.
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
   * Whether the provider may change the plans of queries, by the configuration of a session. Throws
   * IllegalArgumentException for a bad value.
   */
  def changesPlans(conf: Map[String, String]): Boolean =
    trueOrFalse(byLowerCase(conf), ChangePlans).getOrElse(true)

  private def byLowerCase(values: Map[String, String]): Map[String, String] =
    values.map { case (key, value) => key.toLowerCase -> value }

  /** Allowed is what Spark's own provider takes: a short name, or a class that Spark can load. */
  private def checkCodec(name: String): Unit = {
    val conf = Option(SparkEnv.get).map(_.conf).getOrElse(new SparkConf)
    try CompressionCodec.createCodec(conf, name)
    catch {
      case NonFatal(e) => throw new IllegalArgumentException(
          s"$Codec is '$name'; allowed are " +
            CompressionCodec.shortCompressionCodecNames.keys.toSeq.sorted.mkString(", ") +
            ", and the names of the codecs' classes", e)
    }
  }

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
