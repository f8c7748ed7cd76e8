package form

import (
	"testing"

	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/kernels"
)

// Random problems of decode are launched as the form that takes their rows is.
func TestRandomDecodeIsLaunchedAsForms(t *testing.T) {
	kernel, err := spec.Load(kernels.Decode())
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := kernel.Random.Draw(300, 1, func(spec.Shape) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[bool]int{}
	for _, s := range drawn.Shapes {
		axes := s.(spec.Axes)
		rows, most := axes.Value("group")*axes.Value("queries"), 64
		for _, form := range []int{48, 32, 16, 8} {
			if rows <= form {
				most = form
			}
		}
		units := axes.Value("batch") * axes.Value("kv_heads") * ceilDiv(rows, most)
		want := evenBlocks(units, ceilDiv(axes.Value("keys"), 64), 2*64*128, 128, h200.Multiprocessors)
		if got := axes.Value("even"); got != want || axes.Value("blocks") != h200.Multiprocessors {
			t.Errorf("%s: %d even blocks, want %d", s, got, want)
		}
		kinds[want == 0]++
	}
	if len(kinds) != 2 {
		t.Errorf("problems with equal shares and with even blocks: %v", kinds)
	}
}

// Every random problem of attention is one that stage7 takes, of the work that the file states.
func TestRandomAttention(t *testing.T) {
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		t.Fatal(err)
	}
	selection := kernel.Selection("stage7")
	drawn, err := kernel.Random.Draw(500, 1, func(s spec.Shape) error {
		_, err := selection.Choose(s)
		return err
	})
	if err != nil || drawn.Refused > 0 {
		t.Fatalf("%+v, %v", drawn, err)
	}
	dims := map[int]int{}
	for _, s := range drawn.Shapes {
		shape := s.(tensor.Shape)
		plain := shape
		plain.Causal = false
		if work := plain.FLOPs(); work < 1e8 || work > 3e12 || shape.Heads > 64 || shape.SeqQ != shape.SeqK || shape.SeqQ < 64 || shape.SeqQ > 16384 {
			t.Errorf("%s has %.3g FLOPs", s, work)
		}
		dims[shape.HeadDim]++
	}
	for dim, share := range map[int]float64{64: 0.45, 128: 0.45, 256: 0.1} {
		if got := float64(dims[dim]) / 500; got < share-0.08 || got > share+0.08 {
			t.Errorf("a share of %.2f has head dim %d, want about %.2f", got, dim, share)
		}
	}
}

// Every kernel with ranges draws problems that its stages take.
func TestRandomKernels(t *testing.T) {
	count := 0
	for path, folder := range kernels.All() {
		kernel, err := spec.Load(folder)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if kernel.Random == nil || kernel.Declared == nil {
			continue
		}
		count++
		for _, stage := range kernel.Stages {
			_, err := kernel.Random.Draw(40, 2, func(s spec.Shape) error {
				if err := kernel.Declared.Check(stage.Variant(), s); err != nil {
					t.Errorf("%s does not take %s: %v", stage.Name, s, err)
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	if count != 4 {
		t.Errorf("%d declared kernels have ranges; want decode, native, pingpong and warp", count)
	}
}
