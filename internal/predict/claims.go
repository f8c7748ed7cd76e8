package predict

// Claim is a time that an earlier system gave for its kernel of a stage. attune has not measured it.
type Claim struct {
	Stage        string
	Microseconds float64
}

// Claims are an earlier system's figures on an L4 (CUDA 12.2, PyTorch 2.1, October 2025), whose kernels
// read integer codes of 8 bits. Its stages 1 to 4 are those of the same names here.
var Claims = struct {
	Chip, Shape string
	Stages      []Claim
	PyTorch     float64 // FP16, by the same system
}{
	Chip: "L4", Shape: "1x8x512x64",
	Stages:  []Claim{{"stage0", 2870}, {"stage1", 1199.10}, {"stage2", 656.38}, {"stage3a", 656.38}, {"stage4", 655}},
	PyTorch: 25.94,
}

// Claimed is the claim for a variant, shape and chip; 0 for none.
func Claimed(variant, shape, chip string) float64 {
	for _, c := range Claims.Stages {
		if c.Stage == variant && shape == Claims.Shape && chip == Claims.Chip {
			return c.Microseconds
		}
	}
	return 0
}

// Rung is the last one of the ladder on a card: a variant of another kernel on the same problem, whose
// knobs are those of the shortest predicted time.
type Rung struct {
	Chip, Shape string
	Kernel      string // folder
	Variant     string
	Of          string // the shape by the axes of that kernel
}

// Rungs are on the cards that the ladder was not tuned on. The warp kernels are for every card since
// Ampere; this one has E4M3 tensors, as the ladder.
var Rungs = []Rung{{
	Chip: Claims.Chip, Shape: Claims.Shape, Kernel: "attention/warp8", Variant: "f8_d64+TILE_M=64+TILE_N=128",
	Of: "batch=1,kv_heads=8,queries=512,keys=512,section=1,lse=0",
}}
