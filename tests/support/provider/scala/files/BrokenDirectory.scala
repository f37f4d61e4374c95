package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import java.io.{IOException, OutputStream}

import org.apache.spark.sql.execution.streaming.state.cowstate.files.{
  StateDirectory, StateFileInput, StateFileOutput
}

/** Where files can neither be written nor given up. */
object BrokenDirectory extends StateDirectory {
  override def url: String = "nowhere"
  override def create(name: String, isDurable: Boolean): StateFileOutput = new StateFileOutput {
    override def stream: OutputStream = OutputStream.nullOutputStream()
    override def commit(): Unit = throw new IOException("commit failed")
    override def cancel(): Unit = throw new IOException("cancel failed")
  }
  override def open(name: String): StateFileInput = throw new UnsupportedOperationException
  override def list(): Seq[String] = Nil
  override def lengths(names: Seq[String]): Map[String, Long] = Map.empty
  override def delete(names: Seq[String]): Unit = ()
  override def sweepOrphans(): Unit = ()
}
