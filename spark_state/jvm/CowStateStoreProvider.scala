package org.apache.spark.sql.execution.streaming.state.cowstate

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateLoadException, StoreShape
}
import org.apache.spark.sql.execution.streaming.state.cowstate.provider.{
  CowReadStore, CowStateMetrics, CowStateStore, HeldState, ProvidedStore, QueryBatch,
  ReplayedVersion, StateReplay, StateRestores, StoreMaintenance, StoresOfRuns
}
import org.apache.spark.sql.execution.streaming.state.cowstate.spark.ProviderOfSpark
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.{NextIterator, SparkClassUtils}

/**
 * State store provider on a copy-on-write paged map, for
 * spark.sql.streaming.stateStore.providerClass.
 *
 * One provider serves one store (operator, partition, name) on one executor. This class takes the
 * calls of Spark; package provider does the work. HeldState holds the newest state and, as undo
 * logs, the versions before. A QueryBatch begins at the version that Spark asks for, changes the
 * map in place, writes a changelog, and commits. Aborting, or running a batch again, undoes
 * changes. StoreMaintenance runs while batches go on.
 *
 * Files are never overwritten. Lineage decides which files make up a state, see StateFileName.
 */
class CowStateStoreProvider extends ProviderOfSpark with SupportsFineGrainedReplay {
  import CowStateLoadException.loading
  import ProvidedStore.ProviderName

  @volatile private[cowstate] var store: ProvidedStore = _
  @volatile private[cowstate] var held: HeldState = _
  @volatile private var restores: StateRestores = _
  @volatile private var maintenance: StoreMaintenance = _
  @volatile private var replay: StateReplay = _

  override def init(
      stateStoreId: StateStoreId,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useColumnFamilies: Boolean,
      storeConfs: StateStoreConf,
      hadoopConfiguration: Configuration,
      useMultipleValuesPerKey: Boolean,
      stateSchemaProvider: Option[StateSchemaProvider]): Unit = {
    if (useColumnFamilies) throw StateStoreErrors.multipleColumnFamiliesNotSupported(ProviderName)
    if (useMultipleValuesPerKey) {
      throw StateStoreErrors.unsupportedOperationException("multipleValuesPerKey", ProviderName)
    }
    val shape = StoreShape.of(keySchema, valueSchema, keyStateEncoderSpec, ProviderName)
    store = new ProvidedStore(stateStoreId, shape, storeConfs, hadoopConfiguration)
    restores = new StateRestores(store)
    held = new HeldState(store, restores)
    maintenance = new StoreMaintenance(store, held, restores)
    replay = new StateReplay(store, restores)
  }

  override def stateStoreId: StateStoreId = store.id

  override def toString: String = store.toString

  override def close(): Unit = held.close()

  override def getStore(
      version: Long,
      stateStoreCkptId: Option[String],
      forceSnapshotOnCommit: Boolean,
      loadEmpty: Boolean): StateStore =
    loading(version)(write(version, stateStoreCkptId, forceSnapshotOnCommit, loadEmpty))

  private def write(
      version: Long,
      unique: Option[String],
      forceSnapshot: Boolean,
      loadEmpty: Boolean): CowStateStore =
    new QueryBatch(store, held, maintenance, version, forceSnapshot, unique).open(loadEmpty)

  override def getReadStore(version: Long, stateStoreCkptId: Option[String]): ReadStateStore =
    loading(version) {
      held.replaceEarlierRun()
      lent(version, stateStoreCkptId)
        .orElse(held.reader(version, stateStoreCkptId))
        .getOrElse(held.restoredReader(version, stateStoreCkptId))
    }

  /**
   * Return a reader of the state that another provider of the same store has in memory. The other
   * provider belongs to a run of the query. None if there is no such provider, or if the provider's
   * memory does not have the state that counts as `version`.
   */
  private def lent(version: Long, unique: Option[String]): Option[CowReadStore] =
    StoresOfRuns.otherThan(held).filter(_.versions.contains(version)).flatMap { run =>
      val at = restores.stateAt(version, unique, restores.filesOf(version))
      run.lend(at).map(new CowReadStore(store, _, at))
    }

  override def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore,
      version: Long,
      stateStoreCkptId: Option[String],
      forceSnapshotOnCommit: Boolean): StateStore = loading(version) {
    require(
      readStore.id == store.id && readStore.version == version,
      s"$this cannot write version $version after a reader of ${readStore.id}, version " +
        s"${readStore.version}")
    val writer = write(version, stateStoreCkptId, forceSnapshotOnCommit, loadEmpty = false)
    readStore.asInstanceOf[CowReadStore].upgradedTo(writer)
    writer
  }

  override def doMaintenance(): Unit = {
    doSnapshotMaintenance()
    doCleanupMaintenance()
  }

  override def doSnapshotMaintenance(): Unit = maintenance.compact()

  override def doCleanupMaintenance(): Unit = maintenance.deleteFiles()

  override def replayStateFromSnapshot(
      snapshotVersion: Long,
      endVersion: Long,
      readOnly: Boolean,
      snapshotVersionStateStoreCkptId: Option[String],
      endVersionStateStoreCkptId: Option[String]): StateStore = replay.writable(
    ReplayedVersion(snapshotVersion, snapshotVersionStateStoreCkptId),
    ReplayedVersion(endVersion, endVersionStateStoreCkptId))

  override def replayReadStateFromSnapshot(
      snapshotVersion: Long,
      endVersion: Long,
      snapshotVersionStateStoreCkptId: Option[String],
      endVersionStateStoreCkptId: Option[String]): ReadStateStore = replay.readable(
    ReplayedVersion(snapshotVersion, snapshotVersionStateStoreCkptId),
    ReplayedVersion(endVersion, endVersionStateStoreCkptId))

  override def getStateStoreChangeDataReader(
      startVersion: Long,
      endVersion: Long,
      colFamilyNameOpt: Option[String],
      endVersionStateStoreCkptId: Option[String])
      : NextIterator[(RecordType.Value, UnsafeRow, UnsafeRow, Long)] = {
    colFamilyNameOpt.filter(_ != StateStore.DEFAULT_COL_FAMILY_NAME).foreach { _ =>
      throw StateStoreErrors.multipleColumnFamiliesNotSupported(ProviderName)
    }
    loading(endVersion)(restores.changes(startVersion, endVersion, endVersionStateStoreCkptId))
  }

  override def supportedCustomMetrics: Seq[StateStoreCustomMetric] = CowStateMetrics.All

  override def supportedInstanceMetrics: Seq[StateStoreInstanceMetric] =
    Seq(StateStoreSnapshotLastUploadInstanceMetric())
}

private[sql] object CowStateStoreProvider {
  /**
   * True if `providerClass` is the name of this class or of a subclass. False for a class that
   * cannot be loaded: Spark reports the class later.
   */
  def isNamed(providerClass: String): Boolean =
    try {
      val named = SparkClassUtils.classForName[Any](providerClass)
      classOf[CowStateStoreProvider].isAssignableFrom(named)
    } catch { case NonFatal(_) | _: LinkageError => false }
}
