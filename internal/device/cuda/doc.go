// Package cuda runs and times jobs on an NVIDIA GPU through the CUDA driver API. It needs neither
// cgo nor the CUDA toolkit: it opens libcuda.so.1, which the driver installs, at run time.
//
// A CUDA context is current to a thread. One goroutine, locked to its thread, owns the context and
// makes all driver calls; other goroutines send it closures (Machine.do).
//
// An illegal address or a hanging launch leaves a context that cannot be used any more. Therefore
// each variant gets a machine in a child process of its own (package isolate).
//
// Timing replays CUDA graphs, interleaved between the jobs (time.go). Meanwhile NVML
// (libnvidia-ml.so.1, opened in the same way) reports clocks, power, temperature and throttling.
// Without NVML, or without permission to read it, a series has times, no readings, and the reason.
//
// Two hazards of calls without cgo, for the next function that is added: a struct passed by value
// needs its padding written out in Go, and floating-point arguments of a variadic C function arrive
// corrupted. No function used here has either; TestEntriesAreSafeWithoutCgo checks it.
package cuda
