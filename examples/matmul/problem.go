package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"attune/internal/sim/mma"
)

// problem is a matrix product C = A Bᵀ.
type problem struct {
	name, about string
	m, n, k     int
}

// The tile and launch parameters of the kernel.
const (
	tile        = 128
	boxRows     = 64 // of C, per store
	boxColumns  = 32
	threads     = 384
	sharedBytes = 2*2*tile*tile + 4*tile*tile + 4*8
)

func (p *problem) validate() error {
	if p.m < 1 || p.n < 1 || p.k < 1 || p.n%4 != 0 || p.k%16 != 0 {
		return fmt.Errorf("%d x %d x %d is not supported: TMA needs rows of whole 16 bytes; use N divisible by 4 and K by 16", p.m, p.n, p.k)
	}
	return nil
}

// randomE4M3 returns n random E4M3 values of either sign with magnitudes from 1/4 to almost 4. In
// this range no product is so small that a tensor core sum drops all of its bits.
func randomE4M3(seed uint64, n int) []byte {
	const least, range64 = 5 << 3, 4 << 3
	list := make([]byte, n)
	for i := range list {
		x := mix(seed<<40 + uint64(i))
		list[i] = byte(x>>63)<<7 | byte(least+x%range64)
	}
	return list
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// inputs returns A (m, k) and B (n, k).
func (p *problem) inputs() (a, b []byte) { return randomE4M3(1, p.m*p.k), randomE4M3(2, p.n*p.k) }

// product returns C (m, n) as the tensor cores compute it: one m64n128k32 product after the other
// along K.
func (p *problem) product() []byte {
	instruction, err := mma.Lookup("wgmma", []string{"mma_async", "sync", "aligned", "m64n128k32", "f32", "e4m3", "e4m3"})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	product, err := instruction.Product(mma.Hopper, mma.Exact)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	const m, n, k = 64, 128, 32
	a, b := p.inputs()
	c := make([]byte, 4*p.m*p.n)
	var scratch mma.Scratch
	left, right, sums := make([]uint32, m*k), make([]uint32, n*k), make([]uint32, m*n)
	for row := 0; row < p.m; row += m {
		for column := 0; column < p.n; column += n {
			clear(sums)
			for at := 0; at < p.k; at += k {
				copyTile(left, a, p.k, row, at, k)
				copyTile(right, b, p.k, column, at, k)
				product.Multiply(&scratch, sums, left, right, sums)
			}
			for i := range min(m, p.m-row) {
				for j := range min(n, p.n-column) {
					binary.LittleEndian.PutUint32(c[4*((row+i)*p.n+column+j):], sums[i*n+j])
				}
			}
		}
	}
	return c
}

// copyTile copies a tile with the given number of columns that starts at (row, column). Elements
// outside the matrix are zero.
func copyTile(part []uint32, matrix []byte, width, row, column, columns int) {
	clear(part)
	for i := 0; i < len(part)/columns && (row+i+1)*width <= len(matrix); i++ {
		for j := range min(columns, width-column) {
			part[i*columns+j] = uint32(matrix[(row+i)*width+column+j])
		}
	}
}

// caseJSON returns the problem as an attune case.
func (p *problem) caseJSON() []byte {
	type object map[string]any
	a, b := p.inputs()
	tensorMap := func(arg int, dtype string, rows, columns, bytes int, box ...int) object {
		return object{"tensormap": object{
			"arg": arg, "dtype": dtype, "dims": []int{columns, rows}, "strides": []int{columns * bytes}, "box": box,
			"element_strides": []int{1, 1}, "interleave": "none", "swizzle": "128B", "oob": "zero",
		}}
	}
	ordered := []struct {
		key   string
		value any
	}{
		{"name", p.name},
		{"about", p.description()},
		{"ptx", "matmul.ptx"},
		{"arch", arch},
		{"entry", "matmul"},
		{"grid", []int{(p.n + tile - 1) / tile, (p.m + tile - 1) / tile, 1}},
		{"block", []int{threads, 1, 1}},
		{"cluster", []int{1, 1, 1}},
		{"shared", sharedBytes},
		{"args", []object{
			{"hex": hex.EncodeToString(a)},
			{"hex": hex.EncodeToString(b)},
			{"bytes": 4 * p.m * p.n},
			tensorMap(0, "u8", p.m, p.k, 1, tile, tile),
			tensorMap(1, "u8", p.n, p.k, 1, tile, tile),
			tensorMap(2, "f32", p.m, p.n, 4, boxColumns, boxRows),
			{"u32": p.k},
		}},
		{"expect", object{"args": object{"2": object{"hex": hex.EncodeToString(p.product())}}, "findings": []string{}}},
	}
	var text bytes.Buffer
	for i, field := range ordered {
		value, err := json.Marshal(field.value)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		text.WriteString(map[bool]string{true: "{\n", false: ",\n"}[i == 0])
		fmt.Fprintf(&text, " %q: %s", field.key, value)
	}
	text.WriteString("\n}\n")
	return text.Bytes()
}

// description describes the case and the source of its expected output.
func (p *problem) description() string {
	text := fmt.Sprintf("C (%d, %d) = A (%d, %d) times B (%d, %d) transposed, E4M3 in, FP32 out", p.m, p.n, p.m, p.k, p.n, p.k)
	if p.about != "" {
		text += "; " + p.about
	}
	return text + ". The expected output is computed by the model of an H200's tensor cores. An entry hw names the GPU that confirmed it."
}
