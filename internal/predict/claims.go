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
