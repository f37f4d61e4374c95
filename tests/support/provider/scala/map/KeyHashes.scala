package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection
import org.apache.spark.sql.execution.streaming.state.cowstate.map.KeyIndex
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** The hashes of keys that are alike, as text. */
final class KeyHashes {
  def of(family: String, count: Int): String = {
    val (types, keyOf) = family match {
      case "numbers" => (Seq(LongType), (i: Int) => Seq(i.toLong))
      case "large steps" => (Seq(LongType), (i: Int) => Seq(i.toLong << 40))
      case "largest steps" => (Seq(LongType), (i: Int) => Seq(i.toLong << 48))
      case "negative" => (Seq(IntegerType), (i: Int) => Seq(-i))
      case "doubles" => (Seq(DoubleType), (i: Int) => Seq(i.toDouble))
      case "moments" => (Seq(TimestampType), (i: Int) => Seq(1700000000000000L + i * 1000000L))
      case "pairs" => (Seq(LongType, LongType), (i: Int) => Seq(i / 100L, i % 100L))
      case "indexes" => (Seq(LongType, LongType), (i: Int) => Seq(7L, i.toLong))
      case "equal pairs" => (Seq(LongType, LongType), (i: Int) => Seq(i.toLong, i.toLong))
      case "nulls" =>
        (Seq(LongType, LongType),
          (i: Int) =>
            if (i % 2 == 0) Seq[Any](null, i.toLong) else Seq[Any](i.toLong, null))
      case "texts" => (Seq(StringType), (i: Int) => Seq(UTF8String.fromString(s"customer-$i")))
      case "zeros" => (Seq(StringType), (i: Int) => Seq(UTF8String.fromBytes(new Array[Byte](i))))
    }
    val projection = UnsafeProjection.create(types.toArray[DataType])
    (0 until count).map(i => KeyIndex.hashOf(projection(InternalRow.fromSeq(keyOf(i))))).mkString(
      " ")
  }
}
