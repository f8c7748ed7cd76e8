// Package clib has the C library attune_sdpa: attention forward by the variants of a selection,
// for programs that have nothing to do with the lab.
//
// The library is C11 and needs only NVIDIA's driver. src/attune_sdpa.h is its interface, and the other
// files of src its hand-written part: checks, the driver, the values of arguments. [Write] adds the
// generated part, attune_sdpa_forms.c: the images with their launches, which package form describes,
// and the selection's conditions in C.
//
// # Conditions in C
//
// A condition of kernel.toml is Starlark, with integers of any size and floats that never overflow
// silently. internal/rule gives every subexpression a type in C and the interval of its values,
// from the limits of a problem's sizes. So it proves that no C expression overflows, divides by zero
// or compares a rounded integer, and refuses a condition for which it cannot. The C code needs no
// checks, and chooses what the lab chooses.
package clib
