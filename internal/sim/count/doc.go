// Package count counts what Nsight Compute counts too, as far as PTX decides it: sectors of global
// memory, passes over the banks of shared memory, and the machine instructions that matrix
// instructions become.
package count
