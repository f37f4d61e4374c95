package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import org.apache.spark.sql.execution.streaming.state.cowstate.plans.SparkInternals

/**
 * A version of Spark, and changes of plans: `links`, or `fails` because a class of Spark lacks a
 * method. The result says which were made.
 */
final class InternalsScript {
  def run(lines: String): String = lines.split("\n").map(result).mkString("\n")

  private def result(line: String): String = {
    val words = line.split(" ")
    val internals = new SparkInternals(words.head)
    words.tail.map { change =>
      internals.changing("unchanged") {
        if (change == "fails") throw new NoSuchMethodError("toSortAggregate")
        "changed"
      }
    }.mkString(" ")
  }
}
