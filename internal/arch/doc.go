// Package arch lists the architectures of NVIDIA's GPUs, such as sm_90a: which the compiler builds
// for, which the simulator runs, and which the attention libraries have kernels for. Help, doctor,
// errors and verdicts take them from here.
package arch
