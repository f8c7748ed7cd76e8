// Package devicetest has a machine for tests, with memory of its own and kernels that are Go functions.
//
// It honours addresses as a GPU does: a kernel can write past the end of its buffer as far as the allocation reaches, and what lies
// outside every allocation is an illegal address, which ends the launch with a fault and leaves a machine of no further use.
package devicetest
