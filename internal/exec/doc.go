// Package exec runs whole CUDA programs, with their host code, on the simulator.
//
// The program loads a libcuda.so.1 of attune's: the C sources in client, which the host's compiler
// builds once. It has the entry points of the driver, so a program with a static or a dynamic runtime
// library needs no change. It connects to a Server, which owns the simulator, the modules and the
// findings. Requests go over a Unix socket.
//
// Device memory is a file without a name that both processes map: the program at the addresses that
// kernels see. Managed and pinned memory therefore has one address, and the host reads results in
// place. Every piece of work runs to its end when the program enqueues it; streams and events are in
// order because all work is.
package exec
