package form

import (
	"testing"

	"attune/internal/device"
	"attune/internal/tensor"
)

func TestGrid(t *testing.T) {
	check := func(what string, f Form, batch, heads, rows, multiprocessors int, want [3]int) {
		t.Helper()
		shape := tensor.Shape{Batch: batch, Heads: heads, SeqQ: rows, SeqK: rows, HeadDim: 64}
		if got := f.denseGrid(shape, device.Facts{Multiprocessors: multiprocessors}); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	grouped := tensor.Shape{Batch: 2, Heads: 12, KVHeads: 4, SeqQ: 33, SeqK: 33, HeadDim: 64}
	for blocks, want := range map[int][3]int{0: {2, 3, 8}, 3: {30, 1, 1}} {
		f := Form{QueryRows: 32, BlocksPerMultiprocessor: blocks}
		if got := f.denseGrid(grouped, device.Facts{Multiprocessors: 10}); got != want {
			t.Errorf("%v: %v, want %v", grouped, got, want)
		}
	}
	one, three := Form{QueryRows: 32}, Form{QueryRows: 32, BlocksPerMultiprocessor: 3}
	check("the limit of heads in one dimension", one, 1, 65535, 32, 1, [3]int{1, 65535, 1})
	check("one more uses a second dimension", one, 2, 32768, 64, 1, [3]int{2, 32768, 2})
	check("an odd number of heads leaves idle blocks", one, 1, 65537, 32, 1, [3]int{1, 32769, 2})
	check("persistent blocks, as many as fit", three, 2, 8, 512, 10, [3]int{30, 1, 1})
	check("persistent blocks, no more than tiles", three, 2, 8, 32, 10, [3]int{16, 1, 1})
	pairs, persistent := Form{QueryRows: 32, Cluster: 2}, Form{QueryRows: 32, BlocksPerMultiprocessor: 3, Cluster: 4}
	check("whole clusters", pairs, 2, 8, 65, 1, [3]int{4, 16, 1})
	check("persistent clusters, as many as fit", persistent, 2, 8, 512, 10, [3]int{28, 1, 1})
	check("persistent clusters, no more than tiles need", persistent, 1, 5, 32, 10, [3]int{8, 1, 1})
	check("persistent clusters, on a device of unknown size", persistent, 2, 8, 32, 0, [3]int{4, 1, 1})
	check("persistent blocks, on a device of unknown size", three, 2, 8, 32, 0, [3]int{3, 1, 1})
}
