// Package declared is the problem of a kernel that kernel.toml declares: arguments, launch,
// reference, tolerance and work.
//
// The right outputs come from a Python function, from a trusted kernel on the same device or from
// files. Whatever goes wrong with one of them is a problem.ReferenceError in one line, and no fault
// of the kernel.
package declared
