package mma

import "golang.org/x/sys/cpu"

// haveAssembly reports whether the host supports step_amd64.s. GODEBUG=cpu.avx2=off disables it.
var haveAssembly = cpu.X86.HasAVX2

// haveWide reports whether the host supports stepWide as well. GODEBUG=cpu.avx512f=off disables it.
var haveWide = haveAssembly && cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW

// stepAssembly adds the products of a step to the sums of eight columns. It sets a bit of skipped
// for each row that it left unchanged: rows with non-finite values or out-of-range exponents.
//
//go:noescape
func stepAssembly(sums *uint32, a *float32, exponentsA *int16, b *float32, exponentsB *int16, p *stepPlan) (skipped uint64)

// stepWide is stepAssembly for sixteen columns.
//
//go:noescape
func stepWide(sums *uint32, a *float32, exponentsA *int16, b *float32, exponentsB *int16, boundsA, boundsB *int32, p *stepPlan) (skipped uint64)

// decodeTableRow and decodeTableColumns decode n terms of a step of a row of A, and of sixteen columns
// of B, and set the bounds of the step. n is a multiple of 16. The codes of columns are stride apart.
//
//go:noescape
func decodeTableRow(values *float32, exponents *int16, codes *uint32, n int, table *element, bounds *int32)

//go:noescape
func decodeTableColumns(values *float32, exponents *int16, codes *uint32, n, stride int, table *element, bounds *int32)

// integersAssembly sets the sums of eight columns, which lie stride bytes apart, to the products of rows of
// k elements, an even number. b has pairs of terms of the eight columns.
//
//go:noescape
func integersAssembly(sums *int32, a, b *int16, rows, k, stride int)

// decodeAssembly decodes n elements, a multiple of 8. It returns other than zero if an exponent is out
// of the bounds of stepAssembly.
//
//go:noescape
func decodeAssembly(values *float32, exponents *int16, codes *uint32, n int, p *decodePlan) (wide uint32)

// encodeAssembly encodes n float32, a multiple of 8, that are values of f16. It returns other than zero
// if any is not finite.
//
//go:noescape
func encodeAssembly(codes *uint32, sums *uint32, n int) (special uint32)
