package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.unsafe.types.UTF8String

/**
 * Keys of settings that are meant for cowstate and that nothing reads. Spark takes any key, so a
 * misspelled one would be without effect and without a word. Pure.
 *
 * @param prefix of the right keys, with a dot at its end
 * @param names  what may follow it; none: any
 */
private[cowstate] final class MisspelledKeys(prefix: String, names: Seq[String]) {
  import MisspelledKeys._

  /**
   * Throws IllegalArgumentException for a key with an unknown name, and for a key that begins with
   * the prefix but for some letters.
   */
  def refuse(settings: Map[String, String]): Unit = {
    refuseUnknown(settings)
    for ((key, value) <- settings.toSeq.sorted; name <- nameBehindOtherPrefix(key)) {
      throw refused(key, value, name)
    }
  }

  /** Throws IllegalArgumentException for a key with an unknown name, in upper or lower case. */
  def refuseUnknown(settings: Map[String, String]): Unit =
    for ((key, value) <- settings.toSeq.sorted if key.toLowerCase.startsWith(prefix.toLowerCase)) {
      val name = key.drop(prefix.length)
      if (names.nonEmpty && !names.exists(_.equalsIgnoreCase(name))) throw refused(key, value, name)
    }

  private def nameBehindOtherPrefix(key: String): Option[String] = {
    val words = key.split("\\.", -1).toSeq
    val (before, name) = words.splitAt(prefix.count(_ == '.'))
    val other = before.mkString("", ".", ".")
    Option.when(name.nonEmpty && other != prefix && distance(other, prefix) <= Letters)(
      name.mkString("."))
  }

  private def refused(key: String, value: String, name: String) = {
    val near = if (names.isEmpty) Some(name) else nearest(name)
    val way = near.fold(s"the keys are ${names.map(prefix + _).mkString(", ")}")(right =>
      s"did you mean $prefix$right?")
    val is = if (OfSecrets.findFirstIn(key).isDefined) "set" else s"'${value.take(100)}'"
    new IllegalArgumentException(s"$key is $is, and there is no such setting: $way")
  }

  private def nearest(name: String): Option[String] = {
    val near = names.minBy(distance(name, _))
    Option.when(distance(name, near) <= math.max(name.length, near.length) / 2)(near)
  }
}

private object MisspelledKeys {
  /** Two that are swapped count as two. */
  private val Letters = 2
  private val OfSecrets = "(?i)secret|password|token|credential|access.?key|options".r

  private def distance(text: String, other: String): Int =
    UTF8String.fromString(text.toLowerCase)
      .levenshteinDistance(UTF8String.fromString(other.toLowerCase))
}
