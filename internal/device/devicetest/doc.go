// Package devicetest has devices for tests.
//
// Machine is a device.Machine with its own memory, and kernels that are Go functions. Addresses
// behave as on a GPU. A kernel can write past the end of its buffer up to the end of the allocation.
// An access outside every allocation is an illegal address: it ends the launch with a fault, and the
// machine cannot be used afterwards.
//
// GPU opens devices whose kernels do what the test says of each variant: their outputs, times,
// findings and failures.
package devicetest
