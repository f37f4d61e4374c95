package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import java.io.{ByteArrayOutputStream, DataOutputStream}

import net.razorvine.pickle.Unpickler

import org.apache.spark.sql.Dataset
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.classic
import org.apache.spark.sql.execution.python.EvaluatePython
import org.apache.spark.sql.types.{DataType, StructType}

/** Rows as Spark's UnsafeProjection writes them: for each its length as int, and its bytes. */
final class UnsafeRowBytes {
  EvaluatePython.registerPicklers()

  /** The rows of a pickled list of tuples of Spark's internal values. */
  def ofValues(schemaJson: String, pickled: Array[Byte]): Array[Byte] = {
    val schema = DataType.fromJson(schemaJson).asInstanceOf[StructType]
    val convert = EvaluatePython.makeFromJava(schema)
    val projection = UnsafeProjection.create(schema)
    val rows = new Unpickler().loads(pickled).asInstanceOf[java.util.List[Any]]
    joined(rows.toArray.iterator.map(row => projection(convert(row).asInstanceOf[InternalRow])))
  }

  /** The rows that a query gives. */
  def ofQuery(query: Dataset[_]): Array[Byte] = {
    val frame = query.asInstanceOf[classic.Dataset[_]]
    val projection = UnsafeProjection.create(frame.schema)
    joined(frame.queryExecution.executedPlan.executeCollect().iterator.map(projection(_)))
  }

  private def joined(rows: Iterator[UnsafeRow]): Array[Byte] = {
    val bytes = new ByteArrayOutputStream
    val out = new DataOutputStream(bytes)
    rows.foreach { row =>
      out.writeInt(row.getSizeInBytes)
      out.write(row.getBytes)
    }
    bytes.toByteArray
  }
}
