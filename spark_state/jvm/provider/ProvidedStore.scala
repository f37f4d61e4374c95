package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state.{StateStoreConf, StateStoreId}
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{CowStateConf, StoreShape}
import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.RowChecksums
import org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints.{
  StateCheckpoints, StateFileContent
}
import org.apache.spark.sql.execution.streaming.state.cowstate.files.{
  HdfsStateFileReader, StateDirectory
}
import org.apache.spark.sql.execution.streaming.state.cowstate.gateway.PlacedStateDirectory

/**
 * One store (operator, partition, name) on one executor: configuration, files and metrics, shared
 * by the readers, the writers and the maintenance of the store.
 */
private[cowstate] final class ProvidedStore(
    val id: StateStoreId,
    val shape: StoreShape,
    val storeConf: StateStoreConf,
    val hadoopConf: Configuration) {
  import ProvidedStore._

  val conf: CowStateConf = CowStateConf(storeConf)
  val metrics = new StoreMetrics
  val checkpoints = new StateCheckpoints(
    directoryOf(id),
    new HdfsStateFileReader(id.storeCheckpointLocation(), hadoopConf, storeConf.compressionCodec),
    StateFileContent(shape.keySchema, shape.valueSchema, newChecksums(), id.toString),
    conf.syncsChanges)

  /** Return the directory of this store, or of another store of the query. */
  def directoryOf(store: StateStoreId): StateDirectory =
    new PlacedStateDirectory(store, conf.store, hadoopConf)

  /** Return checksums for the rows of one state in memory. */
  def newChecksums(): RowChecksums = RowChecksums(storeConf, id.toString)

  def usesCheckpointIds: Boolean = storeConf.enableStateStoreCheckpointIds

  override def toString: String =
    s"$ProviderName[op=${id.operatorId}, part=${id.partitionId}, store=${id.storeName}]"
}

private[cowstate] object ProvidedStore {
  val ProviderName = "CowStateStoreProvider"
}
