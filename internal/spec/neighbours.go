package spec

import (
	"fmt"
	"math/big"
	"strings"

	"attune/internal/tensor"
)

// Neighbours are shapes that differ from one in a single axis: a value less and more, 1, and the next
// prime. They end tiles early, or leave them nearly empty. Those that the kernel does not take are not
// among them.
func (k *Kernel) Neighbours(s Shape) []Shape {
	var all []Shape
	add := func(text string) {
		if near, err := k.ParseShape(text); err == nil {
			all = append(all, near)
		}
	}
	if attention, ok := s.(tensor.Shape); ok {
		for _, n := range near(attention.SeqQ) {
			other := attention
			other.SeqQ, other.SeqK = n, max(1, n+attention.SeqK-attention.SeqQ)
			add(other.String())
		}
		for _, n := range near(attention.SeqK) {
			other := attention
			other.SeqK = n
			add(other.String())
		}
		attention.Causal = !attention.Causal
		add(attention.String())
		return all
	}
	names, values := s.Axes()
	for i, v := range values {
		for _, n := range near(v) {
			items := make([]string, len(names))
			for j, name := range names {
				items[j] = fmt.Sprintf("%s=%d", name, values[j])
			}
			items[i] = fmt.Sprintf("%s=%d", names[i], n)
			add(strings.Join(items, ","))
		}
	}
	return all
}

// near are values near one: of a switch, its other value.
func near(v int) []int {
	switch v {
	case 0:
		return []int{1}
	case 1:
		return []int{0, 2, 3}
	}
	prime := v + 2
	for !big.NewInt(int64(prime)).ProbablyPrime(0) {
		prime++
	}
	return []int{v + 1, v - 1, prime, 1}
}
