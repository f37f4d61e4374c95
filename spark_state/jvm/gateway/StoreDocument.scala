package org.apache.spark.sql.execution.streaming.state.cowstate.gateway

import java.nio.charset.StandardCharsets.UTF_8
import java.security.MessageDigest

import scala.util.control.NonFatal

import org.json4s.{JInt, JObject, JString, JValue}
import org.json4s.jackson.JsonMethods.{compact, parse, render}

/**
 * Envelope of cowstate's JSON documents, as drawn in checkpoint_store.files.document:
 *
 *   {"body":{...},"checksum":"<sha256>","format":"cowstate/<kind>","version":1}
 *
 * The JSON is canonical: keys sorted, no white space. The checksum covers the document without the
 * checksum.
 */
private[cowstate] object StoreDocument {
  private val Version = 1

  def encoded(kind: String, body: Seq[(String, JValue)]): String = {
    val sorted = JObject(body.sortBy(_._1).toList)
    def document(checksum: Option[String]) = canonical(
      ("body" -> sorted) +: checksum.map("checksum" -> JString(_)).toList :+
        ("format" -> JString(s"cowstate/$kind")) :+ ("version" -> JInt(Version)))
    document(Some(sha256(document(None))))
  }

  /** Return the body of a document; on the left, the problem with the document. */
  def decoded(kind: String, text: String): Either[String, JObject] =
    try {
      val document = parse(text)
      (document \ "version", document \ "body") match {
        case (JInt(version), _) if version > Version =>
          Left(s"it has format version $version, of a later release of cowstate: use that one")
        case (_, body: JObject) if encoded(kind, body.obj) == text => Right(body)
        case _ => Left("it is not what was written")
      }
    } catch { case NonFatal(_) => Left("it is not JSON that was written") }

  private def canonical(fields: Seq[(String, JValue)]): String =
    compact(render(JObject(fields.toList)))

  private def sha256(text: String): String =
    MessageDigest.getInstance("SHA-256").digest(text.getBytes(UTF_8)).map("%02x".format(_)).mkString
}
