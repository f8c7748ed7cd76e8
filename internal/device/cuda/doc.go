// Package cuda runs jobs on an NVIDIA GPU through the driver API, with no cgo and no CUDA toolkit: libcuda.so.1, which the
// driver brings, is opened at run time.
//
// A CUDA context belongs to a thread. One goroutine, locked to its thread for life, owns the context and does all that is to be
// done with it; everybody else sends it closures (Machine.do).
//
// An illegal address or a launch that never ends leaves a context that nothing can be done with, which is why a machine is made
// in a child process (package isolate) for each variant.
//
// While jobs are timed, NVML (libnvidia-ml.so.1, opened alike) is asked for clocks, power, heat and what holds the clocks down. Where it is
// missing or denied there are times without readings, and the series say why.
//
// Two traps of calls without cgo, neither of which any function used here can fall into, but the next one might: a struct
// passed by value needs its padding spelt out in Go, and floating-point arguments of a variadic C function arrive as rubbish.
package cuda
