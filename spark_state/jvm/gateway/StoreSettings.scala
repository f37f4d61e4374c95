package org.apache.spark.sql.execution.streaming.state.cowstate

import com.fasterxml.jackson.core.JsonProcessingException
import org.json4s.{JArray, JObject, JString, JValue}
import org.json4s.jackson.JsonMethods.parse

/**
 * What the session says of the object store: `…cowstate.store`, `.storeOptions` and
 * `.storeRetrySeconds`. They are part of the session's configuration, which Spark shows and logs,
 * so neither the URL nor the options may have credentials.
 *
 * @param url          of the store, without a slash at its end; None: none is set
 * @param options      for fsspec
 * @param retrySeconds for how long a call to the store that fails is tried again
 */
final case class StoreSettings(url: Option[String], options: JObject, retrySeconds: Long) {
  import StoreSettings._

  /** A directory of the store with this URL. */
  private[cowstate] def at(url: String, directory: String): StoreLocation = {
    val silentSeconds = retrySeconds + AttemptSeconds
    StoreLocation(s"$url/$directory", options, retrySeconds, silentSeconds)
  }
}

object StoreSettings {
  /** In the names of options, wherever they are. */
  private val OfSecrets = Seq(
    "secret", "password", "passwd", "passphrase", "token", "credential", "signature",
    "connection_string", "connectionstring", "authorization")
  private val WordsOfSecrets = Set("auth", "pass", "pwd", "sas")
  private val Schemed = "([A-Za-z][A-Za-z0-9+.-]*)://(.*)".r

  /** Throws IllegalArgumentException, which names the key. */
  def apply(
      url: Option[String], options: Option[String], retrySeconds: Option[Long]): StoreSettings =
    StoreSettings(
      url.map(text => checkedUrl(text.trim)),
      options.map(checkedOptions).getOrElse(JObject(Nil)),
      retrySeconds.getOrElse(DefaultRetrySeconds))

  /** The driver's commands ask with this. Throws IllegalArgumentException. */
  def checkOptions(text: String): Unit = checkedOptions(text): Unit

  private val DefaultRetrySeconds = 120L
  /** An attempt that is begun may outlast the time of retries; client libraries try again, too. */
  private val AttemptSeconds = 600L

  /** An absolute path is that of file://, as Python's stores have it. */
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

  /** A URL without a user and a password before an @. A password may have slashes. */
  private def withoutUser(url: String): String = url.replaceFirst("(?s)://.*:.*@", "://…@")

  private def withoutQuery(url: String): String = url.replaceFirst("(?s)\\?.*", "?…")

  private def checkedOptions(text: String): JObject = {
    def refused(problem: String) =
      new IllegalArgumentException(s"${CowStateConf.StoreOptions} $problem")
    val parsed =
      try parse(text)
      catch {
        // Without the cause: its message has a part of the text.
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

  /** The names of options that look like credentials, or are URLs with some, at any depth. */
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
