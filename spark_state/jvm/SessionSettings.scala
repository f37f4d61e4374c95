package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.sql.execution.streaming.state.StateStoreConf
import org.apache.spark.sql.execution.streaming.state.cowstate.base.CowStateConf
import org.apache.spark.sql.internal.SQLConf

/**
 * Check of a session's settings before a query starts, so that mistakes show before any task runs.
 */
object SessionSettings {
  /** Throws IllegalArgumentException for a misspelled key or a bad value. */
  def check(conf: SQLConf): Unit = {
    CowStateConf.refuseMisspelled(conf.getAllConfs)
    if (CowStateStoreProvider.isNamed(conf.stateStoreProviderClass)) {
      CowStateConf(new StateStoreConf(conf)): Unit
    }
  }
}
