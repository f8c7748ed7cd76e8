package peer

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/tensor"
)

// Peer is another implementation in one number format.
type Peer struct {
	Kind  string // torch-flash, torch-cudnn, torch-efficient, torch-math, fa3-fp8, python
	DType string // of its inputs: fp16, bf16, e4m3; empty for python
	// A peer of kind python is a function of a file. It computes a declared problem.
	Name, File, Function string
	// A welcome peer is timed if it is installed, and skipped silently if it is not.
	Optional bool
}

// The kinds of PyTorch are the backends of its scaled_dot_product_attention.
var torchKinds = []string{"torch-flash", "torch-cudnn", "torch-efficient", "torch-math"}

const (
	flash3Kind = "fa3-fp8"
	// Python is the kind of a function f(axes, inputs) of a Python file.
	Python = "python"
)

// Keywords for several kinds or formats.
const (
	allPeers  = "all"
	noPeer    = "none"
	bothTypes = "both"
)

// DTypes are the number formats that can be requested for PyTorch's inputs.
var DTypes = []string{"fp16", "bf16", bothTypes}

// Kinds are the kinds and keywords that Parse accepts.
func Kinds() []string { return append(slices.Clone(torchKinds), flash3Kind, allPeers, noPeer) }

// Parse parses a comma-separated list of kinds. dtype applies to the kinds of PyTorch.
func Parse(kinds, dtype string) ([]Peer, error) {
	if !slices.Contains(DTypes, dtype) {
		return nil, fmt.Errorf("unknown number format %q of peers; there are %s", dtype, strings.Join(DTypes, ", "))
	}
	dtypes := []string{dtype}
	if dtype == bothTypes {
		dtypes = DTypes[:2]
	}
	var all []Peer
	add := func(p Peer) {
		same := func(other Peer) bool { return other.Kind == p.Kind && other.DType == p.DType }
		if i := slices.IndexFunc(all, same); i >= 0 {
			all[i].Optional = all[i].Optional && p.Optional // false if it is also listed by name
			return
		}
		all = append(all, p)
	}
	for name := range strings.SplitSeq(kinds, ",") {
		switch {
		case name == noPeer:
		case name == flash3Kind:
			add(Peer{Kind: name, DType: "e4m3"})
		case name == allPeers, slices.Contains(torchKinds, name):
			for _, kind := range torchKinds {
				for _, t := range dtypes {
					if name == kind || name == allPeers {
						add(Peer{Kind: kind, DType: t})
					}
				}
			}
			if name == allPeers {
				add(Peer{Kind: flash3Kind, DType: "e4m3", Optional: true})
			}
		default:
			return nil, fmt.Errorf("unknown peer %q; there are %s", name, strings.Join(Kinds(), ", "))
		}
	}
	return all, nil
}

// String is the kind, with the number format if it is not the default, or the name of a function.
func (p Peer) String() string {
	if p.Kind == Python {
		return p.Name
	}
	if p.DType == "bf16" {
		return p.Kind + "-bf16"
	}
	return p.Kind
}

// ElementBytes is the size of an element of its inputs.
func (p Peer) ElementBytes() int {
	if p.Kind == flash3Kind {
		return 1
	}
	return 2
}

// CheckShape returns an error for a shape on which the peer computes another problem than ours.
func (p Peer) CheckShape(shape tensor.Shape) error {
	if shape.Causal && shape.SeqQ != shape.SeqK && p.Kind != flash3Kind {
		return &Error{
			Why: "not supported by this peer: its causal mask is aligned to the first key, ours to the last; " +
				"they differ if the numbers of queries and keys differ",
			Do: "use a shape with equal numbers of queries and keys, or one that is not causal",
		}
	}
	if shape.Group() > 1 && p.Kind == flash3Kind {
		return &Error{
			Why: "not supported by this peer: it has one descale factor of Q for all heads that share K and V, ours has one per head",
			Do:  "use a shape without kvheads",
		}
	}
	return nil
}
