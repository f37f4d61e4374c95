package org.apache.spark.sql.execution.streaming.state.cowstate.base

import com.fasterxml.jackson.core.JsonProcessingException
import org.json4s.{JArray, JObject, JString, JValue}
import org.json4s.jackson.JsonMethods.parse

/**
 * The session's settings for the object store: `…cowstate.store`, `.storeOptions` and
 * `.storeRetrySeconds`. Spark shows and logs the session's configuration, so neither the URL nor
 * the options may contain credentials.
 *
 * @param url          URL of the store, without a slash at the end; None if the session sets no
 *                     store
 * @param options      options for fsspec
 * @param retrySeconds time limit for retries of a failing call to the store
 */
final case class StoreSettings(url: Option[String], options: JObject, retrySeconds: Long) {
  import StoreSettings._

  /** Return the location of a directory in the store with this URL. */
  private[cowstate] def at(url: String, directory: String): StoreLocation = {
    val silentSeconds = retrySeconds + AttemptSeconds
    StoreLocation(s"$url/$directory", options, retrySeconds, silentSeconds)
  }
}

object StoreSettings {
  /** An option holds a secret if its name, in lower case, contains any of these texts. */
  private val OfSecrets = Seq(
    "secret", "password", "passwd", "passphrase", "token", "credential", "signature",
    "connection_string", "connectionstring", "authorization")
  private val WordsOfSecrets = Set("auth", "pass", "pwd", "sas")
  private val Schemed = "([A-Za-z][A-Za-z0-9+.-]*)://(.*)".r

  /** Check and parse the settings. Throws an IllegalArgumentException that names the key. */
  def apply(
      url: Option[String], options: Option[String], retrySeconds: Option[Long]): StoreSettings =
    StoreSettings(
      url.map(text => checkedUrl(text.trim)),
      options.map(checkedOptions).getOrElse(JObject(Nil)),
      retrySeconds.getOrElse(DefaultRetrySeconds))

  /** Check options, for commands of the driver. Throws IllegalArgumentException. */
  def checkOptions(text: String): Unit = checkedOptions(text): Unit

  private val DefaultRetrySeconds = 120L
  /**
   * Extra time for the last attempt. The attempt may go on after the retry time is over, because
   * client libraries retry, too.
   */
  private val AttemptSeconds = 600L

  /** Check a URL. An absolute path becomes a file:// URL, as in Python's stores. */
  private def checkedUrl(text: String): String = {
    def refused(problem: String) = new IllegalArgumentException(
      s"${CowStateConf.Store} is '${withoutUser(withoutQuery(text))}', $problem; allowed are " +
        "URLs that fsspec knows, such as s3://bucket/prefix, and absolute paths")
    if (withoutQuery(text) != text) throw refused("which has a query")
    if (withoutUser(text) != text) {
      throw refused("which has credentials. Spark shows and logs its configuration, so they come " +
        "from the environment of the executors (AWS_ACCESS_KEY_ID and others)")
    }
    if (text.exists(_.isControl)) throw refused("which has control characters")
    val trimmed = text.replaceAll("/+$", "")
    trimmed match {
      case Schemed("memory", _) =>
        throw refused("which each gateway would have for itself")
      case Schemed("file" | "local", path) if !path.startsWith("/") =>
        throw refused("which has no absolute path")
      case Schemed("file" | "local", path) => s"file://$path"
      case Schemed(_, rest) if rest.nonEmpty => trimmed
      case path if path.startsWith("/") => s"file://$path"
      case _ => throw refused("which is no URL and no absolute path")
    }
  }

  /** Return a URL without the user and password before an @. A password may contain slashes. */
  private def withoutUser(url: String): String = url.replaceFirst("(?s)://.*:.*@", "://…@")

  private def withoutQuery(url: String): String = url.replaceFirst("(?s)\\?.*", "?…")

  private def checkedOptions(text: String): JObject = {
    def refused(problem: String) =
      new IllegalArgumentException(s"${CowStateConf.StoreOptions} $problem")
    val parsed =
      try parse(text)
      catch {
        // The new error has no cause, because the message of `e` contains a part of the text.
        case e: JsonProcessingException =>
          val place = e.getLocation
          throw refused(
            s"is not JSON (line ${place.getLineNr}, column ${place.getColumnNr}); allowed is a " +
              "JSON object of options for fsspec")
      }
    parsed match {
      case options: JObject =>
        secretsIn("", options).headOption.foreach { name =>
          throw refused(
            s"has '$name', which looks like a credential. Spark shows and logs its " +
              "configuration: set credentials in the environment of the executors, as the client " +
              "of the store reads them (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, " +
              "GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_CONNECTION_STRING …)")
        }
        options
      case _ => throw refused("is not a JSON object of options for fsspec")
    }
  }

  /**
   * Return the names of options, at any depth, that look like credentials, or whose values are URLs
   * with credentials.
   */
  private def secretsIn(name: String, value: JValue): Seq[String] = value match {
    case _ if isSecret(name.toLowerCase) => Seq(name)
    case JObject(fields) => fields.flatMap { case (inner, value) => secretsIn(inner, value) }
    case JArray(values) => values.flatMap(secretsIn(name, _))
    case JString(text) if withoutUser(text) != text => Seq(name)
    case _ => Nil
  }

  private def isSecret(name: String): Boolean = {
    val ofAccount = (name.endsWith("key_id") || name.endsWith("keyid")) && !name.contains("kms")
    OfSecrets.exists(name.contains) || name.endsWith("key") || ofAccount ||
      name.split("[^a-z0-9]+").exists(WordsOfSecrets)
  }
}
