// Package fleet hands work to other machines and takes their results.
//
// A Job is one piece of work as data: a class of devices, a kind, and a body whose bytes and whose
// objects are all that the result depends on. Its key is the hash of these, so that a job that is
// sent twice is one job. The way of a job:
//
//   - Coordinator.Do publishes it on the stream of jobs, unless its result is already there, and waits;
//   - a Worker of its class takes it with a lease, which it renews while the work shows progress;
//   - the worker publishes the signed result on the stream of results, then acknowledges the job;
//   - the coordinator takes the first valid result of each key, and nothing else.
//
// The streams are JetStream's: of a server in this process (Embed), of `attune serve --fleet`, or of
// any NATS cluster. They are never the truth. A job that the server lost is published again by the
// coordinator that waits for it (the outbox), and what is worth keeping is in the journal of a search
// and in the ledger, which only the coordinator writes.
//
// There are two kinds of failure. What a kernel does (it does not compile, is wrong, crashes, hangs) is
// a result. What a machine does (it is lost, its device fails) is not: the job goes to another worker.
// After MaxDeliveries of these it is a dead letter, and Do returns a LostError.
//
// A class says which results may stand beside each other: the name of a GPU, its memory and
// multiprocessors, driver, power limit and clocks, or the simulator. Nothing joins two classes.
package fleet
