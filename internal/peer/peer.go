package peer

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/tensor"
)

// Peer is another implementation in one number format.
type Peer struct {
	Kind  string // torch-flash, torch-cudnn, torch-efficient, torch-math, fa3-fp8
	DType string // of its inputs: fp16, bf16, e4m3
	// Welcome peers are timed where they are installed and are not missed where they are not.
	Welcome bool
}

// The kinds. Those of PyTorch are the backends of its scaled_dot_product_attention, one at a time.
var torchKinds = []string{"torch-flash", "torch-cudnn", "torch-efficient", "torch-math"}

const flash3Kind = "fa3-fp8"

// The words for several at once.
const (
	everyPeer = "all"
	noPeer    = "none"
	bothTypes = "both"
)

// DTypes are what the numbers of PyTorch's inputs can be asked to be.
var DTypes = []string{"fp16", "bf16", bothTypes}

// Kinds are the words that Parse reads.
func Kinds() []string { return append(slices.Clone(torchKinds), flash3Kind, everyPeer, noPeer) }

// Parse reads kinds with commas between them, and the number format for those that leave a choice.
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
			all[i].Welcome = all[i].Welcome && p.Welcome // asked for by its name as well
			return
		}
		all = append(all, p)
	}
	for word := range strings.SplitSeq(kinds, ",") {
		switch {
		case word == noPeer:
		case word == flash3Kind:
			add(Peer{Kind: word, DType: "e4m3"})
		case word == everyPeer, slices.Contains(torchKinds, word):
			for _, kind := range torchKinds {
				for _, t := range dtypes {
					if word == kind || word == everyPeer {
						add(Peer{Kind: kind, DType: t})
					}
				}
			}
			if word == everyPeer {
				add(Peer{Kind: flash3Kind, DType: "e4m3", Welcome: true})
			}
		default:
			return nil, fmt.Errorf("unknown peer %q; there are %s", word, strings.Join(Kinds(), ", "))
		}
	}
	return all, nil
}

// String is the kind, and the number format where it is not the usual one.
func (p Peer) String() string {
	if p.DType == "bf16" {
		return p.Kind + "-bf16"
	}
	return p.Kind
}

// ElementBytes is the size of a number of its inputs.
func (p Peer) ElementBytes() int {
	if p.Kind == flash3Kind {
		return 1
	}
	return 2
}

// Refuse is the error of a shape on which the peer would answer another question than ours, and nil for any other.
func (p Peer) Refuse(shape tensor.Shape) error {
	if shape.Causal && shape.SeqQ != shape.SeqK && p.Kind != flash3Kind {
		return &Error{
			Why: "not supported by this peer: its causal mask is aligned to the first key and ours to the last, which are two masks where there are more keys or fewer than queries",
			Do:  "take a shape with as many keys as queries, or one that is not causal",
		}
	}
	if shape.Group() > 1 && p.Kind == flash3Kind {
		return &Error{
			Why: "not supported by this peer: where heads share K and V it takes one descale factor of Q for them all, and ours have one each",
			Do:  "take a shape without kvheads",
		}
	}
	return nil
}
