package org.apache.spark.sql.execution.streaming.state.cowstate.benchmarks

import java.util.concurrent.{Callable, Executors}

import scala.jdk.CollectionConverters._
import scala.util.Random

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.json4s.JObject

import org.apache.spark.sql.execution.streaming.state.cowstate.base.StoreLocation
import org.apache.spark.sql.execution.streaming.state.cowstate.files.StateDirectory
import org.apache.spark.sql.execution.streaming.state.cowstate.gateway.{
  GatewayObjects, GatewayStateDirectory
}

/**
 * Commits files as the stores of an executor do, one thread a store: `kind` (direct or gateway),
 * the root, how many stores, how many files each commits, and how long these are. Every store waits
 * for the others before its next file. Prints the time of each commit, and of each round of all
 * stores, in microseconds: two lines.
 */
object StoreCommits {
  def main(arguments: Array[String]): Unit = {
    val Seq(stores, files, bytes) = arguments.toSeq.drop(2).map(_.toInt): @unchecked
    val directories = (0 until stores).map(directory(arguments(0), arguments(1), _))
    val pool = Executors.newFixedThreadPool(stores)
    val content = new Array[Byte](bytes)
    new Random(1).nextBytes(content)
    val rounds = (0 until files).map { number =>
      val tasks = directories.map { to =>
        new Callable[Long] {
          override def call(): Long = timed {
            val file = to.create(f"$number%08d.arrow", isDurable = true)
            file.stream.write(content)
            file.commit()
          }
        }
      }
      var commits = Seq.empty[Long]
      val all = timed { commits = pool.invokeAll(tasks.asJava).asScala.map(_.get).toSeq }
      (commits, all)
    }
    println(rounds.flatMap(_._1).mkString(" "))
    println(rounds.map(_._2).mkString(" "))
    System.exit(0)
  }

  private def directory(kind: String, root: String, number: Int): StateDirectory = {
    val path = s"state/0/$number"
    if (kind == "direct") StateDirectory.of(new Path(s"$root/$path"), new Configuration)
    else {
      val location = StoreLocation(s"file://$root", JObject(Nil), 120L, 720L)
      new GatewayStateDirectory(new GatewayObjects(location), path, None)
    }
  }

  private def timed(f: => Unit): Long = {
    val started = System.nanoTime
    f
    (System.nanoTime - started) / 1000
  }
}
