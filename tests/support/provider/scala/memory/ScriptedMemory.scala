package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import java.nio.file.Paths

import org.apache.spark.sql.execution.streaming.state.cowstate.memory.{
  HeapMemory, MappedMemory, MemoryAccount, StateMemory
}

/** The memory of a script: in files of a directory, or on the heap if that has no name. */
object ScriptedMemory {
  def in(localDirectory: String, account: MemoryAccount): StateMemory =
    if (localDirectory.isEmpty) new HeapMemory(account)
    else new MappedMemory(account, Paths.get(localDirectory), "the state of a script")

  /** Account and memory say what is held, after a line of a script. */
  def check(memory: StateMemory, held: HeldBytes, line: String): Unit = {
    val charged = HeldBytes.chargedIn(memory)
    val holds = HeldBytes.asCharged(memory, held)
    assert(charged == holds, s"$charged is charged or given out, $holds is held: $line")
  }
}
