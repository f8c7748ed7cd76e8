// Package predict computes the time of a launch on a card that is not there, from the machine code for
// that card and the counts of the simulator.
//
// Each pipe of a multiprocessor has its cycles: the tensor cores, the exponentials (XU), the issue
// slots, the integer (ALU) and the multiply-add pipe, shared memory, L2, and DRAM. A wave of blocks
// takes as long as its busiest pipe, and a share of the others that the overlap does not hide. That
// share and the model's other constants are fitted to recorded measurements, which are part of the
// package with the residuals of those that the fit has not seen.
package predict
