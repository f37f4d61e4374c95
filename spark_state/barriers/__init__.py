"""Which records belong to which epoch, decided from the barriers of a stream's channels. Pure.

A channel delivers the records of one writer in order, and between them a barrier per epoch: what
came before the barrier of epoch n belongs to epochs up to n, what comes after it does not. The
input gate puts several channels together: `exactly_once` gives back an epoch's records, and nothing
of a later epoch, before it says that the epoch is aligned; `at_least_once` gives back every record
as it arrives.

    channel_event   what arrives: records, barriers, the end of a channel
    epoch_outcome   what is decided: an epoch is aligned, or it never will be
    aligned_barrier_handler, barrier_tracker    deciding, for the two modes
    event_buffer    where the events of channels that are ahead wait
    input_gate      events in, records and outcomes out

No clock, socket, thread or I/O: who reads the channels hands their events in, and spilling is done
by a buffer that is handed in, too. Source of the algorithm: Flink 1.9, BarrierBuffer and
BarrierTracker.
"""
