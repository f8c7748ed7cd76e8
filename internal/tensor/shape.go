package tensor

import (
	"fmt"
	"strconv"
	"strings"
)

// Shape is one attention problem: Batch batches of Heads heads. Each head has SeqQ query rows and
// SeqK keys of HeadDim elements.
type Shape struct {
	Batch int
	Heads int
	// KVHeads is the number of heads of K and V if it differs from Heads, otherwise 0, so that
	// equal problems compare equal. It divides Heads; Heads/KVHeads neighbouring query heads share
	// a K/V head.
	KVHeads int
	SeqQ    int
	SeqK    int
	HeadDim int
	// Causal lets query row i see key j if j <= i + SeqK - SeqQ: the last query sees every key.
	Causal bool
}

// MaxExtent bounds each extent of a shape, so that a typing error does not allocate terabytes.
const MaxExtent = 1 << 24

// maxElements bounds each tensor of a shape.
const maxElements = 1 << 31

// ParseShape parses "BxHxSxD" with the options ":causal", ":kv=N" (the number of keys, S by
// default) and ":kvheads=N" (the number of heads of K and V, H by default).
func ParseShape(text string) (Shape, error) {
	fields := strings.Split(text, ":")
	extents := strings.Split(fields[0], "x")
	if len(extents) != 4 {
		return Shape{}, fmt.Errorf("shape %q: want BxHxSxD, such as 1x8x512x64 or 1x8x512x64:causal", text)
	}
	var s Shape
	for i, into := range []*int{&s.Batch, &s.Heads, &s.SeqQ, &s.HeadDim} {
		n, err := parseExtent(extents[i])
		if err != nil {
			return Shape{}, fmt.Errorf("shape %q: %w", text, err)
		}
		*into = n
	}
	s.SeqK = s.SeqQ
	for _, option := range fields[1:] {
		if err := s.setOption(option); err != nil {
			return Shape{}, fmt.Errorf("shape %q: %w", text, err)
		}
	}
	// In float64, because the product of four extents can overflow an int.
	elements := float64(s.Batch) * float64(s.Heads) * float64(max(s.SeqQ, s.SeqK)) * float64(s.HeadDim)
	if elements > maxElements {
		return Shape{}, fmt.Errorf("shape %q: a tensor would have more than 2^31 elements", text)
	}
	return s, nil
}

// setOption applies "causal", "kv=N" or "kvheads=N" to a shape whose extents are set.
func (s *Shape) setOption(option string) error {
	name, value, _ := strings.Cut(option, "=")
	switch {
	case option == "causal":
		s.Causal = true
	case name == "kv":
		n, err := parseExtent(value)
		if err != nil {
			return fmt.Errorf("kv: %w", err)
		}
		s.SeqK = n
	case name == "kvheads":
		n, err := parseExtent(value)
		if err != nil {
			return fmt.Errorf("kvheads: %w", err)
		}
		if s.Heads%n != 0 {
			return fmt.Errorf("%d heads cannot share %d K/V heads evenly; want a divisor of %[1]d", s.Heads, n)
		}
		if s.KVHeads = n; n == s.Heads {
			s.KVHeads = 0
		}
	default:
		return fmt.Errorf("unknown option %q; there are causal, kv=N and kvheads=N", option)
	}
	return nil
}

func parseExtent(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > MaxExtent || text[0] == '+' {
		return 0, fmt.Errorf("%q is not a whole number from 1 to %d", text, MaxExtent)
	}
	return n, nil
}

// String formats the shape as ParseShape expects it.
func (s Shape) String() string {
	text := fmt.Sprintf("%dx%dx%dx%d", s.Batch, s.Heads, s.SeqQ, s.HeadDim)
	if s.SeqK != s.SeqQ {
		text += fmt.Sprintf(":kv=%d", s.SeqK)
	}
	if s.KVHeads != 0 {
		text += fmt.Sprintf(":kvheads=%d", s.KVHeads)
	}
	if s.Causal {
		text += ":causal"
	}
	return text
}

// axisNames are the names of Axes.
var axisNames = []string{"batch", "heads", "kv_heads", "queries", "keys", "head_dim", "causal"}

// Axes returns the names and values that the conditions of selections see. heads and kv_heads count
// over all batches, because a kernel does not distinguish them. The names are shared and immutable.
func (s Shape) Axes() (names []string, values []int) {
	causal := 0
	if s.Causal {
		causal = 1
	}
	return axisNames, []int{s.Batch, s.HeadCount(), s.KVHeadCount(), s.SeqQ, s.SeqK, s.HeadDim, causal}
}

// HeadCount returns the number of query heads over all batches.
func (s Shape) HeadCount() int { return s.Batch * s.Heads }

// Group returns the number of query heads that share a K/V head. Counted over all batches, query
// head h uses K/V head h / Group.
func (s Shape) Group() int {
	if s.KVHeads == 0 {
		return 1
	}
	return s.Heads / s.KVHeads
}

// KVHeadCount returns the number of K/V heads over all batches.
func (s Shape) KVHeadCount() int { return s.HeadCount() / s.Group() }

// Rows returns the number of query rows over all heads and batches.
func (s Shape) Rows() int { return s.HeadCount() * s.SeqQ }

// Visible returns the number of keys that a query row sees, counted from the first key.
func (s Shape) Visible(row int) int {
	if !s.Causal {
		return s.SeqK
	}
	return max(0, row+s.SeqK-s.SeqQ+1)
}

// FLOPs returns the usual count for attention, 4·B·H·Sq·Sk·D, halved for a causal mask.
func (s Shape) FLOPs() float64 {
	flops := 4 * float64(s.HeadCount()) * float64(s.SeqQ) * float64(s.SeqK) * float64(s.HeadDim)
	if s.Causal {
		flops /= 2
	}
	return flops
}
