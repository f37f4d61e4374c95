package org.apache.spark.sql.execution.datasources.v2.cowstate

import java.util.{HashMap, Locale, Map => JavaMap, Optional}

import scala.jdk.CollectionConverters._

import org.apache.hadoop.fs.Path
import org.json4s.{JArray, JBool, JNull, JObject, JString, JValue}
import org.json4s.jackson.JsonMethods.{compact, parse, render}

import org.apache.spark.sql.catalyst.plans.logical.TableSpec
import org.apache.spark.sql.connector.catalog.{TableCatalog, TableChange}
import org.apache.spark.sql.connector.catalog.TableChange.{RemoveProperty, SetProperty}
import org.apache.spark.sql.connector.write.LogicalWriteInfo
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * Options of a table in Spark's catalog. The options of a read or write are added to the table's
 * options, and replace options of the same names.
 *
 * `properties`: all properties of the table in the catalog. `own`: options from OPTIONS of CREATE
 * TABLE, with the location as option path.
 */
private[cowstate] final class CatalogOptions private (
    val properties: JavaMap[String, String],
    val own: CaseInsensitiveStringMap) {
  import CatalogOptions._

  def path: String = own.get(PathOption)

  def forRead(asked: CaseInsensitiveStringMap): CaseInsensitiveStringMap = {
    OfColumns.find(name => asked.containsKey(name) && asked.get(name) != own.get(name))
      .foreach(name => throw CowStateTableErrors.otherColumns(name, path))
    joined(asked)
  }

  def forWrite(info: LogicalWriteInfo): LogicalWriteInfo = new LogicalWriteInfo {
    private val all = joined(info.options)
    override def options(): CaseInsensitiveStringMap = all
    override def queryId(): String = info.queryId
    override def schema(): StructType = info.schema
    override def rowIdSchema(): Optional[StructType] = info.rowIdSchema
    override def metadataSchema(): Optional[StructType] = info.metadataSchema
  }

  /**
   * Return the options after ALTER TABLE. Refuse a change that would leave two values of one
   * option. Spark's catalog may have two values, because the catalog distinguishes upper and lower
   * case in names, and keeps each option of OPTIONS twice: with the prefix `option.` and without.
   */
  def changed(changes: Seq[TableChange]): CatalogOptions = {
    val after = new HashMap[String, String](properties)
    changes.foreach {
      case set: SetProperty =>
        checkSpelling(set.property)
        after.put(set.property, set.value)
      case remove: RemoveProperty =>
        checkSpelling(remove.property)
        after.remove(remove.property)
      case _ =>
    }
    changes.foreach {
      case remove: RemoveProperty if isOption(remove.property) =>
        val name = remove.property.substring(Prefix.length)
        if (after.containsKey(name)) throw CowStateTableErrors.keptTwice(remove.property, name)
      case _ =>
    }
    CatalogOptions.of(after).get
  }

  private def checkSpelling(asked: String): Unit = if (isOption(asked)) {
    properties.keySet.asScala
      .find(name => name != asked && name.equalsIgnoreCase(asked))
      .foreach(name => throw CowStateTableErrors.otherSpelling(asked, name))
  }

  /** Return the names in TBLPROPERTIES of CREATE TABLE. */
  def besideOptions: Seq[String] =
    // Spark lists each option of OPTIONS twice, once without the prefix.
    properties.keySet.asScala.toSeq.filterNot { name =>
      isOption(name) || own.containsKey(name) || isFixed(name)
    }

  /**
   * Return these options and, in addition, the option `declaration`: with this option, the source
   * in Python checks if a table may have these options and `columns`. If `columns` is None, the
   * source checks only the names in TBLPROPERTIES.
   *
   * @param beside      names in TBLPROPERTIES
   * @param mayLackKeys true if the keys may come with the write that creates the table
   */
  def declaring(
      columns: Option[StructType],
      beside: Seq[String],
      mayLackKeys: Boolean): CaseInsensitiveStringMap = {
    val declaration = JObject(
      "columns" -> columns.fold[JValue](JNull)(all => parse(all.json)),
      "properties" -> JArray(beside.sorted.map(JString(_)).toList),
      "mayLackKeys" -> JBool(mayLackKeys),
      "warehouse" -> JString(SQLConf.get.warehousePath))
    val asked = new HashMap[String, String](own.asCaseSensitiveMap)
    asked.put(Declaration, compact(render(declaration)))
    new CaseInsensitiveStringMap(asked)
  }

  private def joined(asked: CaseInsensitiveStringMap): CaseInsensitiveStringMap = {
    val other = asked.get(PathOption)
    if (other != null && !isSamePlace(other, path)) {
      throw CowStateTableErrors.otherPath(other, path)
    }
    val all = new HashMap[String, String](own.asCaseSensitiveMap)
    asked.asCaseSensitiveMap.asScala.filterNot(_._1.equalsIgnoreCase(PathOption)).foreach {
      case (name, value) =>
        all.keySet.removeIf(other => meant(other) == meant(name))
        all.put(name, value)
    }
    new CaseInsensitiveStringMap(all)
  }
}

private[cowstate] object CatalogOptions {
  private val PathOption = "path"
  /**
   * Prefix of options in the properties of the catalog, where Spark has properties of its own, too.
   */
  private val Prefix = "option."
  private val Provider = "provider"
  /**
   * Option that tells the source in Python that a table is in the catalog; see are_of_catalog in
   * datasources.options.catalog_tables.
   */
  private val InCatalog = "inCatalog"
  /**
   * Option that asks the source in Python about a table before Spark creates the table; see
   * datasources.catalog.table_declaration.
   */
  private val Declaration = "declaration"
  /** Options that change the columns of a read. The catalog has fixed the columns of its tables. */
  private val OfColumns = Seq(
    "columns", "flattenCollectionTypes", "readChangeFeed",
    "stateVarName", "operatorId", "storeName", "joinSide")
  /** Aliases of options, in lower case; the same as in datasources.options.table_options. */
  private val Aliases = Map("batchid" -> "versionasof")

  /** Return the option that a name means, in lower case. Names may have any case. */
  private def meant(name: String): String = {
    val spelled = name.toLowerCase(Locale.ROOT)
    Aliases.getOrElse(spelled, spelled)
  }

  /**
   * Return the options of a table of the catalog, from the properties that Spark passes. None for a
   * read or write by path: only the properties of a table of the catalog name the provider.
   */
  def of(properties: JavaMap[String, String]): Option[CatalogOptions] =
    if (!properties.containsKey(Provider)) None
    else {
      val own = new HashMap[String, String]
      asGiven(properties).forEach { (name, value) =>
        if (isOption(name)) own.put(name.substring(Prefix.length), value)
        if (name.equalsIgnoreCase(PathOption)) own.put(PathOption, value)
      }
      own.put(InCatalog, "true")
      Some(new CatalogOptions(properties, new CaseInsensitiveStringMap(own)))
    }

  private def asGiven(properties: JavaMap[String, String]): JavaMap[String, String] =
    properties match {
      case ofAnyCase: CaseInsensitiveStringMap => ofAnyCase.asCaseSensitiveMap
      case _ => properties
    }

  /** Return the options of a CREATE TABLE, from the form in which Spark passes the statement. */
  def of(spec: TableSpec): CatalogOptions = {
    val all = new HashMap[String, String]
    spec.properties.foreach { case (name, value) => all.put(name, value) }
    spec.options.foreach { case (name, value) => all.put(Prefix + name, value) }
    spec.location.foreach(all.put(PathOption, _))
    all.put(Provider, CowStateTableProvider.Name)
    of(all).get
  }

  /** Return the first option that differs and so gives the two tables different columns, if any. */
  def otherColumns(left: CatalogOptions, right: CatalogOptions): Option[String] =
    OfColumns.find(name => left.own.get(name) != right.own.get(name))

  /** True if a property comes from OPTIONS. */
  def isOption(property: String): Boolean =
    property.toLowerCase(Locale.ROOT).startsWith(Prefix)

  /** True if a property names the location of the table, or the collation of its texts. */
  def isFixed(property: String): Boolean =
    Seq(PathOption, Prefix + PathOption, TableCatalog.PROP_LOCATION, TableCatalog.PROP_COLLATION)
      .exists(property.equalsIgnoreCase)

  private def isSamePlace(left: String, right: String): Boolean = {
    val uris = Seq(left, right).map(new Path(_).toUri)
    val schemes = uris.map(uri => Option(uri.getScheme).getOrElse("file"))
    schemes.distinct.size == 1 && uris.map(_.getAuthority).distinct.size == 1 &&
      uris.map(_.getPath).distinct.size == 1
  }
}
