// Package probe measures the rates of a GPU: matrix products by operands and sums, exponentials, the
// memories, and the clock at the start and under load. Data sheets have peaks at a boost clock; a card
// with a power limit does not keep it.
//
// The kernels are PTX that the package writes ([Module]). Operands come from memory, so that the
// compiler of the driver knows nothing about them.
package probe
