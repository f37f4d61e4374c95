package org.apache.spark.sql.execution.datasources.v2.cowstate

import scala.util.Try

import org.apache.spark.sql.{
  classic, SaveMode, SparkSession, SparkSessionExtensions, SparkSessionExtensionsProvider
}
import org.apache.spark.sql.catalyst.analysis.{ResolvedIdentifier, ResolvedTable}
import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.streaming.WriteToStream
import org.apache.spark.sql.connector.catalog.CatalogV2Implicits._
import org.apache.spark.sql.execution.command.SaveAsV1TableCommand
import org.apache.spark.sql.execution.streaming.state.cowstate.SessionSettings
import org.apache.spark.sql.execution.streaming.state.cowstate.plans.{
  OperatorsOfSpark, SparkInternals, StatefulPlanRule, StateMetricsSources
}

/**
 * Extensions of sessions that start with this jar: plans of stateful queries change, see
 * StatefulPlanRule, and commands are checked before Spark runs them.
 *
 *   start of a query    needs valid settings of cowstate in the session, see SessionSettings
 *   CREATE TABLE        must name the keys. Tables created by `saveAsTable` and `toTable` are not
 *                       checked here, because the write may name the keys
 *   replacing a table   is refused: Spark drops the old table before running the query, or before
 *                       asking about the new table
 *   ALTER TABLE         is checked: Spark changes its catalog and never asks the table
 *
 * Java's service loader finds the class, so nobody has to set spark.sql.extensions.
 */
class CowStateExtensions extends SparkSessionExtensionsProvider {
  import CowStateExtensions._

  override def apply(extensions: SparkSessionExtensions): Unit = {
    SparkInternals.changing(()) {
      extensions.injectCheckRule(session =>
        plan =>
          SparkInternals.changing(()) {
            OperatorsOfSpark.tellOfTransform(session, plan)
            check(session, plan)
          })
      extensions.injectColumnar(_ => StatefulPlanRule)
    }
  }
}

private[cowstate] object CowStateExtensions {
  private def check(session: SparkSession, plan: LogicalPlan): Unit = plan match {
    case _: WriteToStream =>
      SessionSettings.check(session.asInstanceOf[classic.SparkSession].sessionState.conf)
      StateMetricsSources.follow(session)
    case create: CreateTable if create.name.origin.sqlText.isDefined => checkCreated(create)
    case replace: ReplaceTable => checkReplaced(replace.name, replace.tableSpec)
    case replace: ReplaceTableAsSelect => checkReplaced(replace.name, replace.tableSpec)
    case save: SaveAsV1TableCommand if save.mode == SaveMode.Overwrite =>
      checkOverwritten(session, save.tableDesc)
    case alter: AlterTableCommand =>
      alter.table match {
        case ResolvedTable(_, _, table: CowStateTable, _) => table.checkChanges(alter.changes)
        case _ =>
      }
    case _ =>
  }

  private def checkCreated(create: CreateTable): Unit = create.tableSpec match {
    case spec: TableSpec if isOurs(spec) && !isDone(create) =>
      val declared = CatalogOptions.of(spec)
      // A statement with columns and keys is checked when the catalog creates the table.
      if (create.columns.isEmpty || !declared.own.containsKey("keys")) {
        CowStateTableProvider.newSource()
          .inferSchema(declared.declaring(
              Some(create.tableSchema), declared.besideOptions, mayLackKeys = false))
      }
    case _ =>
  }

  private def checkReplaced(name: LogicalPlan, spec: TableSpecBase): Unit = name match {
    case ResolvedIdentifier(catalog, table) if isThere(name) =>
      // Spark decides about tables that cannot be loaded. The name may be a view, which Spark
      // drops, too.
      Try(catalog.asTableCatalog.loadTable(table)).foreach { there =>
        if (isOurs(spec) || there.isInstanceOf[CowStateTable]) {
          throw CowStateTableErrors.replaced((table.namespace :+ table.name).mkString("."))
        }
      }
    case _ =>
  }

  /**
   * Refuse to overwrite an existing table by Spark's older interface, if the old or the new table
   * is of cowstate.
   */
  private def checkOverwritten(session: SparkSession, saved: CatalogTable): Unit = {
    val catalog = session.asInstanceOf[classic.SparkSession].sessionState.catalog
    if (catalog.tableExists(saved.identifier)) {
      val formats = Seq(saved, catalog.getTableMetadata(saved.identifier)).flatMap(_.provider)
      if (formats.exists(_.equalsIgnoreCase(CowStateTableProvider.Name))) {
        throw CowStateTableErrors.replaced(saved.identifier.unquotedString)
      }
    }
  }

  private def isOurs(spec: TableSpecBase): Boolean =
    spec.provider.exists(_.equalsIgnoreCase(CowStateTableProvider.Name))

  private def isDone(create: CreateTable): Boolean =
    create.ignoreIfExists && isThere(create.name)

  private def isThere(name: LogicalPlan): Boolean = name match {
    case ResolvedIdentifier(catalog, table) => catalog.asTableCatalog.tableExists(table)
    case _ => false
  }
}
