package predict

import (
	"encoding/json"
	"os"
	"testing"

	"attune/internal/arch"
)

// published is a published rate of FlashAttention-2 on 8192 keys of 16-bit tensors without a mask, and the
// work of a block of the warp kernel with its tile.
type published struct {
	Chip    string  `json:"chip"`
	HeadDim int     `json:"head_dim"`
	Variant string  `json:"variant"`
	TFLOPS  float64 `json:"published_tflops"`
	Ratio   float64 `json:"predicted_ratio"` // that docs/predict.md has
	Work    Work    `json:"work"`
}

// TestPublished predicts what others have published for cards that attune was not measured on.
func TestPublished(t *testing.T) {
	text, err := os.ReadFile("testdata/published.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []published
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	const keys, width, batch = 8192, 2048, 2
	for i, row := range rows {
		chip, err := arch.ChipNamed(row.Chip)
		if err != nil {
			t.Fatal(err)
		}
		heads := batch * width / row.HeadDim
		w := row.Work
		w.Blocks, w.Buffers = w.Blocks*heads, w.Buffers*float64(heads)
		time := Recorded().Model.Time(w, chip)
		tflops := 4 * float64(heads) * keys * keys * float64(row.HeadDim) / time.Microseconds / 1e6
		ratio := tflops / row.TFLOPS
		t.Logf("%-6s D %3d: predicted %5.1f TFLOP/s, published %5.1f, ratio %.2f, limit %s", row.Chip, row.HeadDim, tflops, row.TFLOPS, ratio, time.Limit)
		if *update {
			rows[i].Ratio = float64(int(100*ratio+0.5)) / 100
			continue
		}
		if ratio < row.Ratio-0.01 || ratio > row.Ratio+0.01 {
			t.Errorf("%s D %d: %.3f of the published rate, recorded %.2f", row.Chip, row.HeadDim, ratio, row.Ratio)
		}
	}
	if *update {
		text, err := json.MarshalIndent(rows, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("testdata/published.json", append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
