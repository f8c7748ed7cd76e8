// Package audit reads a kernel's PTX for the means by which it could remember an earlier launch or
// tell launches apart.
//
// A candidate kernel is untrusted: it may be right in the launches that are checked and skip the
// work in those that are timed. For that it needs memory that outlives a launch, or a value that
// differs between launches. PTX offers few of either, and all of them are visible: variables of the
// module, clocks, identifiers of a launch, the heap, other grids, surfaces and addresses that do
// not come from an argument. PTX finds them by a dataflow analysis over all functions that the
// entry function can reach.
//
// The analysis is conservative about the addresses of variables and outputs. Such an address may be
// moved, and distances may be added to it. Where it is stored outside of the stack, compared, or
// taken apart, a copy could exist that the analysis does not know, and that is a finding. It cannot
// decide where another computed address points; the guards around buffers and the simulator's
// checkers find such accesses when they happen.
package audit
