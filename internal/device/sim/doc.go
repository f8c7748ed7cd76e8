// Package sim runs jobs on the PTX simulator, behind the same interface as a GPU.
//
// It is the stricter device: every job runs under all checkers, and their findings are part of the
// outcome. Instead of launching twice, it runs the job under several schedules, each on fresh
// memory, and the outputs must agree bit for bit. It has no clock: the time that a kernel takes
// here says nothing about a GPU.
package sim
