// Package tune searches the knobs of a kernel for its fastest variant.
//
// A [Space] is the set of allowed variants: knobs with values, and constraints that are solved
// exactly. It comes from a stage of kernel.toml ([OfStage]), from a T1 definition of Kernel Tuner
// and the BAT benchmark suite ([ReadT1]), or from recorded results.
//
// A [Strategy] proposes variants and learns from their results, by Ask and Tell; it evaluates
// nothing itself. A [Search] drives a strategy and writes each evaluation to a journal,
// from which a killed search is resumed.
//
// A [Recording] has the results of every variant of a space, measured once by others. A [Replay]
// lets a strategy search it without a GPU, many times, and counts how many evaluations it needs to
// come within 5 % of the optimum. Recordings are read and written as Kernel Tuner caches and T4
// results.
package tune
