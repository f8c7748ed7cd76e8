// Package form has the forms of attention: variants of the kernels with all that a launch of them
// needs but the problem. It is what the C library, the Python package above that and the Go package
// sdpa have in common.
//
// A [Form] is data: the arguments of its entry function by name, its tensor maps, block, shared
// memory and tile. A dense form has them from the launch contract of its source ([Dense]), all others
// from their kernel.toml ([Declared]). Package clib writes forms as a table in C. [Table.Plan] chooses
// the forms for a [Problem], and [Call.Launches] are their launches, for programs in Go.
package form
