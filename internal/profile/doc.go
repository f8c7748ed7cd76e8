// Package profile collects the counters of a launch and explains what limits it.
//
// The counters come from Nsight Compute, which runs around the child process that runs the kernel
// (Nsight), from the simulator, or from both. All figures have the same keys (Metrics), so the two
// sources can be compared. Figures that follow from the PTX must agree: tensor instructions,
// sectors of global memory, conflicts in shared memory. A figure that no source has counted is
// absent.
//
// The figures give the launch's point under the roofline (Roofline) and a few sentences (Explain).
// Each sentence comes from a named rule and lists the knobs that affect it. It is advice; only a
// run shows whether following it helps. The rules use the figures alone, and know of attention only
// the names of its knobs.
package profile
