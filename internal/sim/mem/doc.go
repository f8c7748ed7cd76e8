// Package mem has the memory of the simulated machine: global memory and its buffers, the shared
// memory of a block, the local memory of a thread, constants, and tensor maps.
//
// Memory keeps marks and shadows beside its bytes, from which the checkers decide. Buffers and
// variables lie apart, so that an index that is slightly out of bounds does not reach a neighbour.
//
// The package does not know the simulator's instructions. Checking an access, and reporting what is
// wrong with it, is the simulator's part.
package mem
