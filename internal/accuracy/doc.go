// Package accuracy says what FP8 attention costs, and what recipes on the host win back.
//
// Measure gives inputs of every kind, shape and recipe to those who answer, and tells each error twice, both times against
// attention in float64. The recipe error is the distance to attention over the inputs as they were before the recipe
// quantised them: what a user of the kernel gets. The kernel error is the distance to attention over the quantised inputs:
// what the kernel itself adds. A recipe can lower the first, a kernel only the second. Beside them stands the error of
// BF16 attention on the same inputs, which is what one would call instead.
//
// An answerer is a variant on a device, or the host: BF16 and E4M3 here are the arithmetic of such kernels, without tiles
// and order. They are models, for lengths that no simulator reaches and for inputs that no kernel has seen yet; no gate
// and no verdict looks at them.
//
// The package runs nothing on a device and judges nothing.
package accuracy
