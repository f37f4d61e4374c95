package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import java.util.concurrent.{ConcurrentHashMap, CountDownLatch}
import java.util.concurrent.atomic.AtomicLong

import scala.util.Try

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.json4s.JObject
import org.json4s.jackson.JsonMethods.parse

import org.apache.spark.sql.execution.streaming.state.cowstate.base.StoreLocation
import org.apache.spark.sql.execution.streaming.state.cowstate.gateway.{GatewayObjects, RunClaim}

/** The claim of a run at a directory of a store, by a clock that stands still until it is told. */
final class ClaimScript(
    checkpoint: String, store: String, options: String, run: String, retrySeconds: Int) {
  private val clock = new AtomicLong
  private val location =
    StoreLocation(store, parse(options).asInstanceOf[JObject], retrySeconds, retrySeconds + 60)
  private val claim = new RunClaim(
    new GatewayObjects(location), new Path(checkpoint, "state"), run, new Configuration(false),
    () => clock.get)

  /** Claim the directory to write this version. */
  def hold(version: Long): Unit = claim.hold(version)

  def waitSeconds(seconds: Int): Unit = clock.addAndGet(seconds * 1000000000L)

  /** What a commit would tell, if it fails. */
  def refusal(): String = Try(claim.verifyNowAndThen()).failed.map(_.toString).getOrElse("")

  /** How many failures as many tasks see that claim at once, and the messages of these. */
  def failuresOf(tasks: Int): String = {
    val failures = ConcurrentHashMap.newKeySet[Throwable]()
    val begun = new CountDownLatch(tasks)
    val threads = Seq.fill(tasks)(new Thread(() => {
      begun.countDown()
      begun.await()
      Try(claim.hold(1)).failed.foreach(failures.add)
    }))
    threads.foreach(_.start())
    threads.foreach(_.join())
    (failures.size.toString +: failures.toArray.toSeq.map(_.toString)).mkString("\n")
  }
}
