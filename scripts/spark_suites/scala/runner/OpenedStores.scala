package org.apache.spark.sql.execution.streaming.state.cowstate.suites

import java.util.concurrent.atomic.AtomicLong

/** Number of stores that the tested provider has opened in this JVM. */
object OpenedStores {
  private val opened = new AtomicLong

  def count: Long = opened.get

  def add(): Unit = opened.incrementAndGet()
}
