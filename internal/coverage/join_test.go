package coverage

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJoin(t *testing.T) {
	lines := func(from, to int) Range { return Range{"a.cu", from, to} }
	first := &Summary{Lines: 20, Never: []Range{lines(1, 5), lines(9, 9)}, Partly: []Range{lines(12, 12), lines(14, 14)}, OneWay: []Range{lines(16, 17)}}
	second := &Summary{Lines: 20, Never: []Range{lines(4, 6), lines(12, 12), lines(17, 17)}, Partly: []Range{lines(2, 2)}, OneWay: []Range{lines(9, 9), lines(16, 16)}}
	want := &Summary{
		Lines: 20, Never: []Range{lines(4, 5)}, // executed by neither
		Partly: []Range{lines(2, 2), lines(12, 12)}, // only one has executed them
		OneWay: []Range{lines(9, 9), lines(17, 17)}, // both have executed 16, perhaps with either outcome
	}
	if diff := cmp.Diff(want, first.Join(second)); diff != "" {
		t.Error("the joined summary differs (-want +got):\n", diff)
	}
	if diff := cmp.Diff(want, second.Join(first)); diff != "" {
		t.Error("the order matters (-want +got):\n", diff)
	}
	if got := first.Join(nil); got != nil {
		t.Errorf("without one of them got %v", got)
	}
}
