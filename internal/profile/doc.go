// Package profile says what a launch did and what limits it.
//
// The figures come from Nsight Compute, which is run around the child process that runs the kernel (Nsight), or from the simulator's counters, or from both.
// All of them are kept under the same keys (Metrics), so that the two can be held against each other: what PTX alone decides, such as the work of the tensor
// cores, the sectors of global memory and the conflicts in shared memory, must agree. What neither has counted is not there, and nothing is put in its place.
//
// From the figures follow the place under the roofline (Roofline) and a few sentences (Explain). Each sentence has a rule with a name behind it, and names the
// knobs that bear on it; it is advice, and only a run can say whether it was good. The rules look at figures alone and know nothing of attention but its knobs.
package profile
