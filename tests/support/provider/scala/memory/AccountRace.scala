package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import java.util.concurrent.CyclicBarrier

import org.apache.spark.sql.execution.streaming.state.cowstate.memory.MemoryAccount

/** Accounts that are closed while a task which was given up acquires and releases. */
final class AccountRace {
  private val Rounds = 3000

  /** The bytes that are left charged when all accounts are closed. */
  def run(): Long = {
    val before = MemoryAccount.executorBytes
    val barrier = new CyclicBarrier(2)
    val accounts = Array.fill(Rounds)(new MemoryAccount(Long.MaxValue, "a race"))
    val task = new Thread("a task that was given up") {
      override def run(): Unit = accounts.foreach { account =>
        account.acquire(1 << 10)
        barrier.await()
        for (_ <- 1 to 50) account.acquire(8)
        account.release(1 << 10)
      }
    }
    task.start()
    accounts.zipWithIndex.foreach { case (account, round) =>
      barrier.await()
      for (_ <- 1 to round % 300) Thread.onSpinWait()
      account.close()
    }
    task.join()
    MemoryAccount.executorBytes - before
  }
}
